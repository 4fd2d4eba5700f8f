"""Where options come from: defaults, then the preset on its data, then --config, then flags. Each counts more than the one before."""

import pytest
import yaml

from obdsd import cli
from obdsd.files import read_mapping


@pytest.fixture
def config_of(capsys):
    """What --print-config shows for a command."""

    def run(*words: object) -> dict:
        assert cli.main([*map(str, words), "--print-config"]) == 0
        return yaml.safe_load(capsys.readouterr().out)

    return run


def test_the_options_of_the_issue(config_of):
    words = ["--loss", "margin(beta=0.6, sampling=random)", "--targets", "batch-diffusion", "--omega", 0.4, "--weight", "1e3", "--no-flip"]
    found = config_of("train", "glyphs", "--preset", "margin+psd", *words)
    wanted = {"loss": "margin(beta=0.6, sampling=random)", "teacher": "previous-epoch", "targets": "batch-diffusion(omega=0.4)"}
    wanted |= {"weight": 1000.0, "backbone": "tiny-conv", "flip": False}
    assert {name: found[name] for name in wanted} == wanted


def test_default_preset_config_flag(config_of, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("omega: 0.11\nweight: 5\n")
    paper = ("--preset", "ms+obd-sd")
    assert config_of("train", "cub200:x")["preset"] == "recommended"
    assert config_of("train", "cub200:x", *paper)["weight"] == 1000.0
    assert config_of("train", "cars196:x", *paper)["targets"] == "batch-diffusion(omega=0.99)"
    found = config_of("train", "cars196:x", *paper, "--weight", "7", "--config", file)
    assert (found["targets"], found["weight"], found["epochs"]) == ("batch-diffusion(omega=0.11)", 7.0, 150)
    found = config_of("train", "cars196:x", *paper, "--config", file, "--omega", "0.5")
    assert (found["targets"], found["weight"]) == ("batch-diffusion(omega=0.5)", 5.0)


COMMANDS = [
    ["train", "x.npz", "--preset", "ms+psd", "--weight", "3", "--ks", "1,5"],
    ["train", "folder:x", "--size", "96", "--test-fraction", "0"],
    [
        "train",
        "cars196:x",
        "--preset",
        "ms+obd-sd",
        "--loss",
        "margin(beta=0.6)",
        "--omega",
        "0.2",
        "--schedule",
        "steps",
        "--lr-steps",
        "3,4",
        "--val-fold",
        "0/3",
    ],
    ["train", "glyphs", "--preset", "nt-xent+s2sd-msdf", "--head", "two-layer", "--no-flip", "--out", "somewhere"],
    ["compare", "x.npz", "--presets", "ms,ms+psd", "--epochs", "3", "--weight", "5", "--omega", "0.2", "--ks", "1,2", "--no-report"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_printed_can_be_given_back(config_of, tmp_path, words):
    found = config_of(*words)
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(found))
    assert config_of(words[0], "--config", tmp_path / "again.yaml") == found


def test_a_comparisons_configuration_has_what_was_given_for_every_row(config_of):
    found = config_of(*COMMANDS[-1])
    assert (found["presets"], found["epochs"], found["weight"], found["omega"]) == (["ms", "ms+psd"], 3, 5.0, 0.2)
    assert "lr" not in found


def test_flags_count_more_than_a_runs_own_config(config_of, trained):
    """A run's config.yaml holds every option: those of its preset and data give way to another preset and other data."""
    file = trained.folder / "config.yaml"
    usual = config_of("train", "--config", file)
    assert (usual["preset"], usual["targets"], usual["weight"]) == ("ms+obd-sd", "batch-diffusion(omega=0.3)", 3.0)
    assert config_of("train", "--config", file, "--epochs", "9") == {**usual, "epochs": 9}
    assert config_of("train", "--config", file, "--preset", "ms+psd") == {**usual, "preset": "ms+psd", "targets": "pairwise"}
    other = config_of("train", "glyphs", "--config", file)
    assert (other["data"], other["backbone"], other["seed"], other["weight"]) == ("glyphs", "tiny-conv", 3, 3.0)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"epocs: 3", "epocs=3 is no option here; did you mean epochs?"),
        (b"3: 4", "3=4 is no option here; see --help for what there is"),
        (b"epochs: many", "--epochs many must be a whole number"),
        (b"flip: maybe", "--flip maybe must be true or false"),
        (b"loss: {margin: {beta: 1}}", "loss: "),
        (b"targets: 3", "targets: '3' must begin with a name; write it as margin(beta=0.6, sampling=random)"),
        (b"epochs: 3\nweight: 2\nepochs: 4", "{file}: line 3: epochs is given twice, first in line 1; keep one"),
        (b"3: 1\n'3': 2", "{file}: line 2: 3 is given twice, first in line 1; keep one"),
        (b"loss:\n  beta: 1\n  beta: 2", "{file}: line 3: beta is given twice, first in line 2; keep one"),
        (b"- epochs", "{file}: must hold named fields, as epochs: 3; mend or restore it"),
        (b"", "{file}: must hold named fields, as epochs: 3; mend or restore it"),
        (b"a: [", "{file}: is no YAML (expected the node content, but found '<stream end>' in line 1); mend or restore it"),
        (b"logger: \xff\xfe", "{file}: cannot be read ('utf-8' codec can't decode byte 0xff in position 8: invalid start byte); mend or"),
        (b"logger: \x00", "{file}: cannot be read (unacceptable character #x0000: special characters are not allowed"),
        (None, "--config {file}: no such file; give a YAML file of options"),
    ],
    ids=lambda value: value.decode("latin-1") if isinstance(value, bytes) else "",
)
def test_a_config_that_cannot_be_used(refused, tmp_path, content, line):
    file = tmp_path / "options.yaml"
    if content is not None:
        file.write_bytes(content)
    assert refused("train", "glyphs", "--config", file).startswith(line.format(file=file))


def test_json_that_gives_a_name_twice_is_refused(refused, tmp_path):
    file = tmp_path / "options.json"
    file.write_text('{"epochs": 3, "loss": {"beta": 1, "beta": 2}}')
    assert refused("train", "glyphs", "--config", file) == f"{file}: beta is given twice; keep one"


def test_what_a_merge_brings_gives_way_to_a_files_own_fields(tmp_path):
    """Nothing is given twice there, though a field of that name is merged in."""
    (tmp_path / "rows.yaml").write_text("a: &a {preset: ms, lr: 0.1}\nb: &b {<<: *a, lr: 0.2}\nc: {<<: [*b, *a], lr: 0.3}")
    assert {name: row["lr"] for name, row in read_mapping(tmp_path / "rows.yaml").items()} == {"a": 0.1, "b": 0.2, "c": 0.3}


def test_a_runs_config_is_none_for_a_comparison(refused, trained):
    line = "preset=ms+obd-sd is no option of a comparison; name several with --presets"
    assert refused("compare", "--config", trained.folder / "config.yaml") == line
