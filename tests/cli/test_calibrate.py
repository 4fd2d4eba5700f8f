"""`obdsd calibrate`: the threshold that it keeps in an index, and when `obdsd search` then finds nothing."""

import json
import re
import shutil

import numpy as np
import pytest

from obdsd import cli
from obdsd.evaluation import Points
from obdsd.models import Embedder
from obdsd.search import Index, Pass
from obdsd.search.calibration import calibrate
from tests.refusing import mistakes


def rows_of(classes, each, seed, dim=6):
    rng = np.random.default_rng(7)  # the same classes each time
    centres = rng.standard_normal((40, dim))
    numbers = np.repeat(classes, each)
    rows = centres[numbers] + 0.4 * np.random.default_rng(seed).standard_normal((len(numbers), dim))
    return rows.astype(np.float32), np.array([f"class {number}" for number in numbers])


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Rows of 40 classes: 20 in an index, with labels and without; 15 others, held out; and what cannot be measured on."""
    folder = tmp_path_factory.mktemp("calibrate")
    Embedder("features", features=6, dim=5, seed=0).save(folder / "head")
    files = {"known.npz": (range(20), 10), "held.npz": (range(25, 40), 8), "alone.npz": (range(25, 40), 1), "one.npz": ([30], 20)}
    for seed, (name, (classes, each)) in enumerate(files.items()):
        rows, labels = rows_of([*classes], each, seed)
        np.savez(folder / name, embeddings=rows, labels=labels, split=["test"] * len(rows))
    rows, labels = rows_of([*range(25, 40)], 8, seed=1)
    np.savez(folder / "bare.npz", embeddings=rows)
    np.savez(folder / "renamed.npz", embeddings=rows, labels=[f"other {label}" for label in labels], split=["test"] * len(rows))
    np.savez(folder / "longer.npz", embeddings=np.tile(rows, 2), labels=labels, split=["test"] * len(rows))
    how = Pass(workers=0, device="cpu")
    for data in ("known", "bare", "held"):
        Index.build(str(folder / "head"), str(folder / f"{data}.npz"), folder / f"{data}.index", how=how)
    return folder


@pytest.fixture
def run(here, monkeypatch, capsys):
    monkeypatch.chdir(here)

    def run(*words):
        code = cli.main([*words])
        return code, *capsys.readouterr()

    return run


def embedded(here, name):
    with np.load(here / name) as file:
        model = Embedder.load(here / "head")
        import torch

        with torch.inference_mode():
            return model(torch.from_numpy(file["embeddings"])).numpy(), file["labels"] if "labels" in file.files else None


def test_the_threshold_is_that_of_the_rows_and_is_kept(here, run):
    code, printed, told = run("calibrate", "known.index", "held.npz", "--rates", "0.01,0.1", "--device", "cpu")
    assert code == 0
    rows, labels = embedded(here, "held.npz")
    expected = calibrate(rows, labels, [0.1, 0.01], collection=Points(*embedded(here, "known.npz")))
    kept = json.loads((here / "known.index" / "index.json").read_text())["thresholds"]
    assert [*kept] == ["0.1", "0.01"]
    for each in expected.thresholds:
        entry = kept[f"{each.rate:g}"]
        assert entry["similarity"] == pytest.approx(each.similarity, abs=1e-5)
        assert entry["misses"] == pytest.approx(each.misses, abs=0.02)
        assert (entry["queries"], entry["classes"], entry["searched"], entry["data"]) == (120, 15, 319, "held.npz")
    first, header, *lines = printed.splitlines()
    assert first == "held.npz: 120 items of 15 classes, each searches 319 others"
    assert header.split()[:2] == ["false-match", "rate"]
    assert re.fullmatch(r"10 % +0\.\d{3}  0\.\d{3} to 0\.\d{3} +\d+\.\d %  \d+\.\d to \d+\.\d", lines[0])
    assert lines[2].startswith("single pairs, FMR 10 %: similarity ")
    hint = r"most items miss their class: at 0\.\d{3} half of the items find their class, with a false-match rate of \d+ %; ask for"
    assert kept["0.1"]["misses"] > 0.5
    assert re.match(hint, lines[-3])
    assert lines[-2] == 'so most searches will say "nothing alike"; to go back: obdsd calibrate known.index --forget'
    similarity = kept["0.1"]["similarity"]
    kept_line = (
        f'kept: obdsd search known.index answers "nothing alike" below {similarity:.3f} (--threshold -1 finds all); --false-match-rate'
    )
    assert lines[-1].startswith(kept_line)
    assert told == ""
    assert Index.open(here / "known.index").threshold() == similarity
    assert Index.open(here / "known.index").threshold(0.01) == kept["0.01"]["similarity"]


def test_search_then_finds_nothing_for_as_many_strangers_as_the_rate_says(here, run):
    assert run("calibrate", "known.index", "held.npz", "--rates", "0.1", "--device", "cpu")[0] == 0
    answers = Index.open(here / "known.index").search(np.load(here / "held.npz")["embeddings"], 1)
    assert np.mean([not answer.nothing_alike for answer in answers]) <= 0.1  # their classes are not in the index
    code, printed, _ = run("search", "known.index", "held.npz", "--k", "1", "--device", "cpu")
    assert code == 0
    assert printed.count("nothing alike: the nearest item has") >= 108
    assert printed.count("(--threshold -1 finds all)") >= 108


def test_what_is_kept_is_replaced_and_can_be_forgotten(here, run):
    for rate in ("0.1", "0.2"):
        assert run("calibrate", "known.index", "held.npz", "--rates", rate, "--device", "cpu")[0] == 0
        assert [*Index.open(here / "known.index").settings.thresholds] == [rate]
    assert run("calibrate", "known.index", "--forget") == (0, "known.index: no threshold is kept; a search finds all\n", "")
    assert Index.open(here / "known.index").threshold() is None
    assert "nothing alike" not in run("search", "known.index", "held.npz", "--k", "1", "--device", "cpu")[1]


@pytest.fixture(scope="module")
def photos(made, tmp_path_factory):
    """A folder of 4 classes and a photo that cannot be read, its index by an untrained network, and one by a model with a head."""
    folder = tmp_path_factory.mktemp("photos")
    for name, part in (("ant", "train"), ("bee", "train"), ("cat", "query"), ("dog", "query")):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(6):
            shutil.copy(made / f"{name}-{part}-{i}.png", folder / "photos" / name)
    (folder / "photos" / "dog" / "broken.png").write_bytes(b"no image")
    Embedder("tiny-conv", head="none", seed=3).save(folder / "bare")
    how = Pass(workers=0, device="cpu")
    for model in (folder / "bare", made / "tiny"):
        Index.build(str(model), f"folder:{folder / 'photos'}", folder / f"{model.name}.index", how=how, skip_unreadable=True)
    return folder


def test_a_model_that_nothing_trained_is_asked_by_all_classes_and_opened_as_the_index_opens_them(photos, run):
    words = (f"folder:{photos / 'photos'}", "--rates", "0.1", "--device", "cpu", "--workers", "0")
    code, printed, told = run("calibrate", str(photos / "bare.index"), *words)
    assert (code, printed.splitlines()[0]) == (0, f"folder:{photos / 'photos'}: 24 items of 4 classes, each searches 23 others")
    assert "1 of 25 images are left out, as they cannot be read: dog/broken.png" in told
    code, printed, _ = run("calibrate", str(photos / "tiny.index"), *words)
    first, second, *_ = printed.splitlines()
    assert (code, second) == (0, "the other 2 classes are not in test, and do not search")
    assert first.endswith("12 items of 2 classes, each searches 23 others")  # photos that are in the index, too, count once


def test_the_usual_rates_are_those_that_the_items_can_show(run):
    code, printed, told = run("calibrate", "known.index", "held.npz", "--device", "cpu")
    assert code == 0
    assert told == ""
    assert [line.split()[0] for line in printed.splitlines()[2:3]] == ["1"]


def test_items_without_a_label_are_not_searched(run):
    code, printed, told = run("calibrate", "bare.index", "held.npz", "--rates", "0.1", "--device", "cpu")
    assert code == 0
    assert "each searches 119 others" in printed
    assert told.startswith("obdsd: bare.index: 120 of 120 items of the index have no label and are not searched; false matches are more")


def test_the_same_items_in_the_index_are_no_matches(here, run):
    """The usual case: the index holds the very photos that calibrate it."""
    code, _, _ = run("calibrate", "held.index", "held.npz", "--rates", "0.1", "--device", "cpu")
    assert code == 0
    alone = calibrate(*embedded(here, "held.npz"), [0.1]).thresholds[0]
    assert Index.open(here / "held.index").threshold() == pytest.approx(alone.similarity, abs=1e-5)


def test_items_that_trained_the_model_are_refused_and_nothing_is_kept(trained, rows, tmp_path, capsys):
    index = Index.build(str(trained.folder), rows, tmp_path / "rows.index", how=Pass(workers=0, device="cpu"))
    with np.load(rows) as file:
        np.savez(tmp_path / "all.npz", embeddings=file["embeddings"], labels=file["labels"], split=["test"] * len(file["labels"]))
    assert cli.main(["calibrate", str(index.path), str(tmp_path / "all.npz"), "--rates", "0.1", "--device", "cpu"]) == 2
    assert re.search(r"was trained on \d+ of the 120 items of test, such as", capsys.readouterr().err)
    assert Index.open(index.path).threshold() is None
    assert cli.main(["calibrate", str(index.path), rows, "--rates", "0.1", "--device", "cpu"]) == 0  # its own test classes


test_mistakes_are_one_line = mistakes(
    "calibrate",
    [
        (["known.index", "one.npz"], "one.npz: test: there is one class only ('class 30'); retrieval needs 2 or more to tell apart"),
        (["known.index", "alone.npz"], "alone.npz: test: no query has another item of its class to find; give classes of 2 items or more"),
        (["known.index", "bare.npz"], "bare.npz: scoring needs labels, but it "),
        (["known.index", "held.npz", "--rates", "0.1,10"], "--rates 0.1,10.0 must be between 0 and 1"),
        (["known.index", "held.npz", "--rates", "5%"], "--rates 5% must be a number; write 0.05"),
        (["known.index", "held.npz", "--rates", "0.001"], "--rates 0.001 cannot be measured on 120 items; give 1,000 or more, or ask"),
        (["held.index", "renamed.npz", "--rates", "0.1"], "labels: 120 of 120 items are there again under another label, so no"),
        (["known.index", "held.npz", "--part", "val"], "held.npz: --part val is not there; it has test"),
        (["known.index", "longer.npz"], "longer.npz: vectors have length 12, but "),
        (["known.index", "none.npz"], "none.npz: no such file"),
        (["head", "held.npz"], "head: is a folder without index.json; give an index, as obdsd index MODEL DATA --out photos.index writes"),
        (["known.index"], "DATA must be given: obdsd calibrate INDEX DATA [options]"),
        (["known.index", "held.npz", "--forget"], "--forget measures nothing; leave out held.npz"),
        (["known.index", "held.npz", "--size", "64"], "--size is no option of obdsd calibrate; "),
    ],
)  # fmt: skip


def test_a_full_disk_leaves_the_index_as_it_was(here, capsys, full_disk):
    file = here / "known.index" / "index.json"
    before = file.read_bytes()
    assert cli.main(["calibrate", str(here / "known.index"), str(here / "held.npz"), "--rates", "0.1"]) == 2
    assert re.search(r"index\.json: cannot be written \(No space left on device\)", capsys.readouterr().err)
    assert file.read_bytes() == before
