"""Tables of the paper: what is finished is not run again, and ours stands beside theirs."""

import csv
import itertools
import json
import multiprocessing
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import obdsd
from obdsd import cli
from obdsd.errors import InputError
from obdsd.experiments import reproduction
from obdsd.experiments.recipes import TABLES
from obdsd.experiments.reproduction import Reproduction, chooses_weight, find, options_of, records, reproduce, settled
from obdsd.experiments.reproduction_tables import cells, header, lines_of, markdown, write
from obdsd.presets import preset
from tests.made_up import write_rows
from tests.refusing import mistakes


@pytest.fixture(scope="module")
def quick():
    """The small scale, smaller still."""
    with pytest.MonkeyPatch.context() as patch:
        less = {"epochs": 2, "batch_size": 12, "dim": 5, "hidden": 8, "device": "cpu", "reference": True}
        patch.setitem(reproduction.SCALES, "small", {**reproduction.SCALES["small"], **less})
        yield


@pytest.fixture(scope="module")
def asked(quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("space")
    data = write_rows(folder / "rows.npz", 20, 6, 12)
    one = Reproduction(table="space", scale="small", data=data, seeds=2, out=folder / "out")
    reproduce(one, show=False)
    return one


def copied(asked, folder, *names):
    """The same table in another folder that has only these files of it."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(asked.out / name)
    return replace(asked, out=folder)


def by_name(asked):
    return {line.name: line for line in lines_of(asked)}


def write_lines(asked, lines):
    (asked.out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_run_is_a_line_with_its_options_and_scores(asked):
    done = records(asked.out)
    assert [(record["options"]["seed"], record["row"]) for record in done] == [*itertools.product((0, 1), asked.rows)]
    for record in done:
        assert json.loads((asked.out / record["run"] / "result.json").read_text())["scores"] == record["scores"]
        assert record["versions"]["obdsd"] == obdsd.__version__
        assert (record["reference"] is not None) == (record["options"]["seed"] == 0)  # the untrained features are scored once a row


def test_finished_rows_are_not_run_again_whatever_table_asks_for_them(asked, monkeypatch):
    before = (asked.out / "results.jsonl").read_bytes()
    monkeypatch.setattr("obdsd.experiments.runs.train", None)
    reproduce(asked, show=False)
    reproduce(replace(asked, table="elements", only="psd"), show=False)  # the same training
    assert (asked.out / "results.jsonl").read_bytes() == before
    with pytest.raises(RuntimeError, match="not callable"):
        reproduce(replace(asked, seeds=3), show=False)


def test_changed_settings_are_told_and_kept_apart(asked, quick, tmp_path):
    """In a folder that holds the table's own runs: these stay as they are, and none of them is taken for a changed one."""
    one = copied(asked, tmp_path / "both")
    for name in ("results.jsonl", "times.json", "chosen.json"):
        shutil.copy(asked.out / name, one.out / name)
    own, before = write(one), by_name(one)
    changed = replace(one, seeds=1, only="ms", changes={"epochs": 1, "batch_size": 8})
    assert lines_of(changed)[0].seeds == 0  # no run yet
    reproduce(changed, show=False)
    assert [record["options"]["epochs"] for record in records(one.out)] == [2] * 6 + [1]
    assert records(one.out)[-1]["options"]["batch_size"] == 8
    assert lines_of(changed)[0].seeds == 1
    assert by_name(one) == before
    texts = [path.read_text() for path in own]
    made = write(changed)
    assert [path.name for path in made] == [f"space-small-cub200-epochs-1-batch_size-8.{suffix}" for suffix in ("md", "csv")]
    assert "last epoch. λ was chosen on held-out training classes. Other settings than the table's: epochs=1, batch_size=8. Diff" in (
        made[0].read_text()
    )
    assert made[1].read_text().splitlines()[1].endswith(',"epochs=1, batch_size=8"')
    assert [path.read_text() for path in write(one)] == texts
    assert "Other settings" not in texts[0]


def test_a_later_version_with_more_options_knows_its_folders_again():
    """The name of a run's folder, as it was when results/ was written."""
    assert reproduction._key(preset("ms+obd-sd", "cub200:birds")) == "ms+obd-sd-a9ad8450"
    assert reproduction._key(preset("ms+obd-sd", "cub200:birds", seed=3)) == "ms+obd-sd-a9ad8450"
    assert reproduction._key(preset("ms+obd-sd", "cub200:birds", omega=0.31)) != "ms+obd-sd-a9ad8450"


def test_data_are_the_same_however_their_path_is_written(tmp_path, monkeypatch):
    """Runs, chosen weights and times are found by it; also those of a version that kept the path as it was given."""
    monkeypatch.chdir(tmp_path)
    paths = ["rows.npz", "./rows.npz", f"{tmp_path}/rows.npz", f"embeddings:../{tmp_path.name}/rows.npz"]
    asked = [Reproduction(table="space", scale="small", data=path, seeds=2, out=tmp_path) for path in paths]
    assert {one.data for one in asked} == {"rows.npz"}
    write_lines(asked[0], [{"options": {"data": path}} for path in paths[1:3]])
    assert [record["options"]["data"] for record in records(tmp_path)] == ["rows.npz", "rows.npz"]


def test_two_processes_lose_nothing_of_times_and_chosen_weights(tmp_path):
    def keep_many(name):
        asked = Reproduction(table="space", scale="tiny", data="glyphs", seeds=1, out=tmp_path)
        for number in range(50):
            together.wait(60)
            asked.keep("times.json", f"{name} {number}", 1.0)

    forks = multiprocessing.get_context("fork")
    together = forks.Barrier(2)
    both = [forks.Process(target=keep_many, args=(name,)) for name in ("one", "other")]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert len(json.loads((tmp_path / "times.json").read_text())) == 100


def test_a_line_that_was_cut_off_is_written_again(asked, tmp_path, monkeypatch):
    """The run is there, its line is not: nothing is trained, and what follows stands on a line of its own."""
    copy = copied(asked, tmp_path / "copy", "runs", "search")
    whole = (asked.out / "results.jsonl").read_text().splitlines()
    (copy.out / "results.jsonl").write_text("\n".join(whole[:-1]) + "\n" + whole[-1][:200])
    monkeypatch.setattr("obdsd.experiments.runs.train", None)
    reproduce(copy, show=False)
    assert sorted(record["run"] for record in records(copy.out)) == sorted(record["run"] for record in records(asked.out))


def test_results_of_another_version_are_refused(asked, tmp_path):
    first, *_ = records(asked.out)
    assert first["format"] == 1
    for number, remedy in ((0, "move it away: the same obdsd reproduce writes it anew of the runs"), (99, "update obdsd")):
        (tmp_path / "results.jsonl").write_text(json.dumps({**first, "format": number}) + "\n")
        with pytest.raises(InputError, match=rf"results.jsonl: is a list of results of another version .*, not 1\); {remedy}"):
            records(tmp_path)


def test_the_weight_is_the_best_on_held_out_classes(asked):
    chosen = settled(asked, asked.rows["psd"], show=False)
    found = {}
    for folder in (asked.out / "search").glob("ms+psd-*/weight-*"):
        results = [json.loads(file.read_text()) for file in folder.glob("*/result.json")]
        assert {result["scored"] for result in results} == {"validation"}
        assert len(results) == 2
        found[float(folder.name.removeprefix("weight-"))] = np.mean([result["scores"]["recall@1"] for result in results])
    assert found.keys() == {10.0, 100.0, 1000.0}
    assert found[chosen.weight] == max(found.values())
    assert not list((asked.out / "search").glob("ms-*"))  # the plain loss has none to choose


def test_another_tables_weights_do_not_count_for_a_row(asked, tmp_path):
    """The λ table trains the same system with other weights; the chosen one stays what it was."""
    copy, done = copied(asked, tmp_path / "copy", "chosen.json"), records(asked.out)
    chosen = by_name(asked)["obd-sd"].weight
    others = [record for record in done if record["row"] == "obd-sd"]
    write_lines(copy, [*done, *({**each, "options": {**each["options"], "weight": chosen + 1}, "scores": {}} for each in others)])
    assert [(line.name, line.ours) for line in lines_of(copy)] == [(line.name, line.ours) for line in lines_of(asked)]
    (copy.out / "chosen.json").unlink()
    assert {line.name: line.seeds for line in lines_of(copy)} == {"ms": 2, "psd": 0, "obd-sd": 0}


def test_runs_on_data_that_changed_are_not_taken_for_done(asked, tmp_path):
    copy, done = copied(asked, tmp_path / "copy"), records(asked.out)
    done[-1]["data"]["train"]["fingerprint"] = "of other rows"
    write_lines(copy, done)
    with pytest.raises(InputError, match=r"results.jsonl holds runs on other data than .*rows.npz holds now; choose another out"):
        reproduce(copy, show=False)


def test_rows_that_set_their_weight_and_heads_keep_it(asked):
    of_lambda = replace(asked, table="lambda")
    assert settled(of_lambda, of_lambda.rows["lambda-100"], show=False).weight == 100.0
    heads = next(row for row in TABLES["obdp"].rows("cub200") if row.name == "s2sd-msd")
    options = settled(replace(asked, table="obdp"), heads, show=False)
    assert (options.weight, str(options.system)) == (50.0, "s2sd(widths=[128, 256, 384, 512])")


def test_the_numbers_are_those_of_the_runs_beside_those_in_print(asked):
    done = records(asked.out)
    ours = {name: [record for record in done if record["row"] == name] for name in ("ms", "psd", "obd-sd")}
    lines = by_name(asked)
    recall = {name: np.array([100 * run["scores"]["recall@1"] for run in runs]) for name, runs in ours.items()}
    assert lines["obd-sd"].ours["recall@1"].mean == pytest.approx(recall["obd-sd"].mean())
    assert lines["obd-sd"].ours["density"].mean == pytest.approx(np.mean([run["train"]["density"] for run in ours["obd-sd"]]))
    assert lines["obd-sd"].difference.mean == pytest.approx((recall["obd-sd"] - recall["ms"]).mean())
    assert lines["obd-sd"].relative == pytest.approx(100 * (recall["obd-sd"] - recall["ms"]).mean() / recall["ms"].mean())
    measured = json.loads((asked.out / "times.json").read_text())
    pair = next(name for name in measured if name.startswith("ms+psd-") and " beside ms-" in name)
    assert lines["psd"].extra_time == pytest.approx(100 * (measured[pair] - 1))
    assert lines["obd-sd"].paper == {"density": 0.6291, "spectral-decay": 0.0292}
    assert (lines["ms"].difference, lines["ms"].extra_time, lines["ms"].weight) == (None, None, None)


def test_the_papers_differences_times_and_literature(tmp_path, quick):
    (tmp_path / "rows.npz").touch()
    table = Reproduction(table="self-distillation", scale="small", data=str(tmp_path / "rows.npz"), seeds=5, out=tmp_path)
    lines = by_name(table)
    assert (lines["bar"].paper_extra_time, lines["obd-sd"].paper_extra_time) == (105.3, 17.4)
    assert lines["obd-sd"].paper_difference == pytest.approx(67.8 - 63.1)
    assert lines["bar"].seeds == 0  # nothing has run
    assert cells(table, lines["bar"])[:5] == ["bar", "", "", "", "64.1"]
    assert by_name(replace(table, table="noise"))["obd-sd-0.4"].paper_relative == 20.44
    asked = Reproduction(table="sota", scale="tiny", data="glyphs", seeds=1, out=tmp_path)
    sota = by_name(asked)
    assert len(asked.rows) == 6 + 14  # ours, then systems of other papers
    assert [name for name in sota if name not in asked.rows] == ["ms+plg", "proxy-anchor"]  # whose published numbers alone are shown


def test_files_that_other_tools_open(asked):
    paths = write(asked)
    assert [path.name for path in paths] == ["space-small-cub200.md", "space-small-cub200.csv"]
    with open(paths[1], newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["ms", "psd", "obd-sd"]
    assert {row["scale"] for row in rows} == {"small"}
    table = paths[0].read_text()
    assert table == markdown(asked)
    assert table.splitlines()[0] == "| " + " | ".join(header(asked)) + " |"
    assert "λ was chosen on held-out training classes" in table


def test_records_of_other_options_are_not_taken(asked):
    done, options = records(asked.out), options_of(asked.rows["ms"], "small", asked.data)
    assert find(done, options) is not None
    assert find(done, replace(options, lr=0.5)) is None
    older = [{**done[0], "options": {name: value for name, value in done[0]["options"].items() if name != "supervision"}}]
    assert find(older, options) is not None  # written before that option was there


WRONG = [
    (["elemnts", "--scale", "tiny"], "TABLE elemnts is not known; did you mean elements?"),
    ([], "table must be given; there are strong-baselines, sota,"),
    (["elements"], "data must be given with --scale paper; give a benchmark, as --data cub200:PATH"),
    (["elements", "--scale", "small"], "data must be given with --scale small; give frozen features: obdsd embed"),
    (["elements", "--scale", "small", "--data", "glyphs"], "--data glyphs does not go with --scale small; give frozen features"),
    (["elements", "--scale", "tiny", "--only", "obdsd"], "--only obdsd is no row of elements; there are ms, psd-constant,"),
    (["sota", "--scale", "small", "--data", "x.npz"], "TABLE sota needs images, --scale small has features only"),
    (["elements", "--scale", "tiny", "--seeds", "0"], "--seeds 0 must be 1 or more"),
    (["sota", "--scale", "tiny", "--only", "ms+plg"], "--only ms+plg learns from how alike classes are; give --similarities FILE"),
    (
        ["elements", "--scale", "tiny", "--similarities", "q.csv"],
        "--similarities q.csv does nothing: no row of elements learns from them here; leave it out",
    ),
    (["elements", "--scale", "huge"], "--scale huge must be one of paper, small, tiny"),
    (["elements", "--scale", "tiny", "--epochs", "0"], "--epochs 0 must be 1 or more"),
    (
        ["sota", "--scale", "tiny", "--backbone", "tiny-conv"],
        "--backbone tiny-conv would undo what the rows of sota differ in",
    ),
    (
        ["elements", "--scale", "small", "--data", "x.npz", "--backbone", "resnet50"],
        "--backbone resnet50 is for networks, --scale small has features only; leave it out or use --scale paper",
    ),
]


here = pytest.fixture(lambda tmp_path: tmp_path)
test_mistakes_get_one_line = mistakes("reproduce", WRONG)


def test_the_list_names_every_table_and_row(capsys):
    assert cli.main(["reproduce", "--list"]) == 0
    said = capsys.readouterr().out
    for name, table in TABLES.items():
        assert f"{name}: {table.title}" in said
        assert all(row.name in said for row in table.rows("cub200"))


def test_one_row_from_the_command_line(capsys, tmp_path):
    words = ["reproduce", "space", "--scale", "tiny", "--only", "psd", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--backbone", "tiny-conv", "--batch-size", "24", "--epochs", "1"]) == 0
    said = capsys.readouterr().out
    assert "Embedding-space metrics (Table 8); scale tiny on glyphs" in said
    assert "Other settings than the table's: backbone=tiny-conv, batch_size=24, epochs=1." in said
    (record,) = records(tmp_path / "out")
    assert [record["options"][name] for name in ("backbone", "batch_size", "epochs")] == ["tiny-conv", 24, 1]
    assert record["row"] == "psd"


def test_an_incomplete_benchmark_can_be_accepted(tmp_path, capsys):
    """The remedy that the refusal names is there."""
    for number in range(101):
        folder = tmp_path / "birds" / "images" / f"{number + 1:03}.Bird_{number}"
        folder.mkdir(parents=True)
        Image.new("RGB", (8, 8), (number, 9, 9)).save(folder / "1.jpg")
    words = ["reproduce", "space", "--data", f"cub200:{tmp_path / 'birds'}", "--only", "ms", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert "--allow-incomplete" in capsys.readouterr().err
    assert cli.main([*words, "--allow-incomplete"]) == 2
    said = capsys.readouterr().err  # it goes on to what a training needs
    assert "--allow-incomplete" not in said


def test_at_the_papers_scale_only_the_row_that_the_paper_searched_is_searched():
    rows = TABLES["elements"].rows("cub200")
    assert [row.name for row in rows if chooses_weight(row, "paper", options_of(row, "paper", "cub200:somewhere"))] == ["psd-constant"]
