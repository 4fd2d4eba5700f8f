"""One rule says what is scored, for every command; what cannot be scored is refused before any training."""

import json

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.data.check import check_scorable
from obdsd.evaluation import evaluate
from obdsd.models import Embedder
from obdsd.report import gather
from obdsd.training import RunRecord
from tests.cli.conftest import SMALL

RNG = np.random.default_rng(5)
X = (np.eye(6)[np.arange(60) % 6] + RNG.normal(scale=0.6, size=(60, 6))).astype(np.float32)
Y = np.array([*"abcdef" * 5, *"ABCDEF" * 5])  # lower case trains


def write(path, splits, labels=Y, **columns):
    np.savez(path, x=X, y=labels, split=["train"] * 30 + splits, **columns)
    return path


def test_query_and_gallery_count_more_than_test_for_every_command(obdsd, tmp_path):
    split = ["test", "query", "gallery"] * 10
    file = write(tmp_path / "x.npz", split, np.array([*"abcdef" * 5, *np.repeat([*"ABCDE"], 6)]))
    y, q, g = np.load(file)["y"][30:], np.array(split) == "query", np.array(split) == "gallery"
    assert obdsd("train", file, "--preset", "ms+obd-sd", "--out", tmp_path / "run", *SMALL)[0] == 0
    record = RunRecord.read(tmp_path / "run")
    with torch.no_grad():
        z = Embedder.load(tmp_path / "run/model")(torch.from_numpy(X[30:])).numpy()
    scores = evaluate(z[g], y[g], query=(z[q], y[q])).as_dict()
    assert record.scores == pytest.approx(scores)
    printed = obdsd("evaluate", tmp_path / "run", file, "--out", tmp_path / "s.json")[1]
    assert "gallery of 10 items and query of 10 items" in printed
    assert json.loads((tmp_path / "s.json").read_text())["scores"] == pytest.approx(scores)
    words = [word for word in SMALL if word != "--no-report"]
    assert obdsd("compare", file, "--presets", "ms+obd-sd", "--seeds", 1, "--out", tmp_path / "both", *words)[0] == 0
    (line,) = json.loads((tmp_path / "both/comparison.json").read_text())["lines"]
    assert {name: mean["mean"] for name, mean in line["means"].items()} == pytest.approx(
        {name: (record.train if name in ("density", "spectral-decay") else scores)[name] for name in line["means"]}
    )
    content = gather([tmp_path / "run"], device="cpu")
    assert [content.names[number] for number in content.asking] == [f"row {30 + number}" for number in np.flatnonzero(q)]
    assert list(check_scorable("x", open_data(str(file)).parts)) == ["gallery", "query"]
    assert obdsd("data", "check", file)[1].endswith("no problem found\n")


UNFIT = {
    "no part that tests": (["train"] * 30, "part=test is not there; it has train"),
    "a query without a gallery": (["query"] * 30, "part=test is not there; it has train, query"),
    "a gallery without a query": (["gallery"] * 30, "part=test is not there; it has train, gallery"),
    "disjoint classes": (["query", "gallery"] * 15, "gallery and query: no query has another item of its class to find"),
    "disjoint classes beside a good test": (["query", *["gallery"] * 2, *["test"] * 3] * 5, "gallery and query: no query has another item"),
}


@pytest.mark.parametrize(("splits", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_what_cannot_be_scored_is_refused_before_any_training(obdsd, refused, tmp_path, splits, message):
    file = write(tmp_path / "x.npz", splits)
    for command in ("train", "compare"):
        code, printed, told = obdsd(command, file, "--out", tmp_path / "out", *SMALL)
        assert (code, printed) == (2, "")
        assert f"{file}: {message}" in told.splitlines()[-1]
        assert not (tmp_path / "out").exists()
    code, printed, _ = obdsd("data", "check", file)
    assert (code, f"cannot be scored: {file}: {message}" in printed) == (2, True)
    assert message.replace("part=", "--part ") in refused("evaluate", file)


@pytest.mark.parametrize("names", [None, [f"{i % 30}.jpg" for i in range(60)]], ids=["by content", "by name"])
def test_a_query_that_the_gallery_holds_too_does_not_find_itself(obdsd, tmp_path, names):
    """Scores are those of a test part, where each item asks for the others."""
    asked = X[30:] if names is None else X[:30]  # the same, or seen otherwise
    both = {"x": np.concatenate([X[30:], asked]), "y": [*Y[30:], *Y[30:]], "split": ["gallery"] * 30 + ["query"] * 30}
    np.savez(tmp_path / "both.npz", **both, **({} if names is None else {"names": names}))
    assert obdsd("evaluate", tmp_path / "both.npz", "--no-clusters", "--out", tmp_path / "s.json")[0] == 0
    found = json.loads((tmp_path / "s.json").read_text())["scores"]
    numbers = np.arange(30)
    expected = evaluate(X[30:], Y[30:], groups=numbers, query=(asked, Y[30:], numbers), clusters=False)
    assert found == pytest.approx(expected.as_dict())
    if names is None:
        alone = evaluate(X[30:], Y[30:], clusters=False)
        assert [found[name] for name in ("recall@1", "map@r", "queries")] == pytest.approx([alone["recall@1"], alone["map@r"], 30])
    assert found["recall@1"] < 1
