"""The command line as a whole: help, exit codes, mistakes in one line, parts from other packages."""

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

import obdsd
from obdsd import cli
from obdsd.catalogue import LOSSES
from obdsd.cli import evaluate, info, parser
from obdsd.errors import InputError, Terminated
from obdsd.options import TrainOptions
from obdsd.presets import LOSSES as PRESET_LOSSES
from obdsd.presets import METHODS, SENTENCES

SOURCE = Path(obdsd.__file__).parents[1]


def printed(capsys, *words):
    assert cli.main(words) == 0
    return capsys.readouterr().out


def test_a_real_process_returns_the_exit_code():
    def run(*words):
        done = subprocess.run([sys.executable, "-m", "obdsd", *words], capture_output=True, text=True, cwd=SOURCE, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("--version") == (0, f"obdsd {obdsd.__version__}\n", "")
    assert run("inof") == (2, "", "obdsd: there is no command 'inof'; did you mean info?\n")


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["evaluate", "-h"]], ids=" ".join)
def test_help_is_instant(words):
    """No torch, no numpy, and hardly any time of the processor."""
    code = (
        f"import sys, time; from obdsd import cli; code = cli.main({words}); "
        "print(code, 'torch' in sys.modules, 'numpy' in sys.modules, time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCE, check=True)
    *found, seconds = done.stderr.split()
    assert found == ["0", "False", "False"]
    assert float(seconds) < 0.3  # measured 0.08 to 0.11


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], []], ids=["--help", "-h", "help", "nothing"])
def test_help_teaches_commands_and_exit_codes(words, capsys):
    text = printed(capsys, *words)
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command} +[A-Z].*[^:]\.$", text, re.MULTILINE)
    for code in (cli.DONE, 1, cli.MISTAKE, cli.TERMINATED, cli.INTERRUPTED):
        assert re.search(rf"^  {code} +[A-Z].*\.$", text, re.MULTILINE)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_explains_every_option_in_sentences_on_lines_that_fit(command, capsys):
    text = printed(capsys, command, "--help-all" if command in ("train", "compare") else "--help")
    assert max(map(len, text.splitlines())) <= parser.WIDTH == 110
    assert text.startswith(f"usage: obdsd {command} ")
    assert " object at 0x" not in text
    words = " ".join(text.split())
    for name, field in cli._module(command).Options.__dataclass_fields__.items():
        if "sentence" not in field.metadata:  # the options of a training, for compare; what calibrate's model says itself
            assert f"--{name} " not in words
            continue
        assert field.metadata["sentence"][0].isupper() or field.metadata["sentence"].startswith(("cpu", "paper"))
        assert field.metadata["sentence"].endswith(".")
        assert " ".join(field.metadata["sentence"].split()) in words
        assert re.search(rf"^  {name.upper()} |^  --{name.replace('_', '-')}[ ,]", text, re.MULTILINE)


def flags_in(text):
    """The flags that a help explains, by group."""
    groups = re.split(r"^([a-z][\w :]+):$", text, flags=re.MULTILINE)
    found = {title: re.findall(r"^  --([\w-]+)", part, re.MULTILINE) for title, part in zip(groups[1::2], groups[2::2], strict=True)}
    return {title: " ".join(flags) for title, flags in found.items() if flags}


def test_help_of_a_training_shows_what_matters_and_help_all_the_rest(capsys):
    first, everything = printed(capsys, "train", "--help"), printed(capsys, "train", "--help-all")
    common = "config print-config debug help-all"
    assert flags_in(first) == {
        "what is learned from": "preset loss teacher",
        "length and speed": "epochs frozen batch-size lr",
        "the run": "seed out resume",
        "model": "backbone pretrained dim size",
        "evaluation": "val-fraction",
        "help and configuration": common,
    }
    assert first.endswith("\nThese are the usual options; --help-all shows all.\n")
    assert "usual options" not in everything
    shown = {flag for flags in flags_in(everything).values() for flag in flags.split()}
    assert shown == {*common.split(), "omega"} | {name.replace("_", "-") for name in TrainOptions.__dataclass_fields__ if name != "data"}
    assert "The shell needs the quotes" in " ".join(first.split())
    assert "Learning rate. [1e-05 in the paper]" in first
    assert "--flip, --no-flip" in everything


def test_help_of_a_comparison_has_the_options_of_a_training_that_hold_for_every_row(capsys):
    first, everything = (flags_in(printed(capsys, "compare", word)) for word in ("--help", "--help-all"))
    assert [*first][:2] == [*everything][:2] == ["options", "every row: what is learned from"]
    assert first["every row: model"] == "backbone pretrained dim size"
    shown = {flag for flags in everything.values() for flag in flags.split()}
    left_out = {name for name in TrainOptions.__dataclass_fields__ if name.replace("_", "-") not in shown}
    assert left_out == {"data", "preset", "seed", "resume"}


def test_info_as_json_and_as_a_table(capsys):
    facts, table = json.loads(printed(capsys, "info", "--format", "json")), printed(capsys, "info")
    assert facts["obdsd"] == obdsd.__version__
    assert all(f"{facts[name]}\n" in table for name in ("python", "torch", "accelerator"))


def test_parts_of_all_kinds_and_of_one(capsys):
    every, losses = printed(capsys, "parts"), printed(capsys, "parts", "loss")
    assert losses in every
    assert all(name in losses for name in ("  margin: ", "      beta: "))
    assert [("batch-diffusion: " in text) for text in (every, losses)] == [True, False]


def test_presets_are_listed_with_a_sentence_each(capsys):
    text = printed(capsys, "presets")
    assert [*SENTENCES] == ["recommended", *PRESET_LOSSES, *filter(None, METHODS)]
    for name, sentence in SENTENCES.items():
        assert re.search(
            rf"^  {re.escape(name if name in ('recommended', *PRESET_LOSSES) else '+' + name)} +{re.escape(sentence)}$", text, re.MULTILINE
        )
        assert re.fullmatch(r"[A-Z].*\.", sentence)


def test_the_settings_of_a_preset_on_given_data(capsys):
    found = yaml.safe_load(printed(capsys, "presets", "ms+bar", "cars196:x"))
    parts = {"loss": "multi-similarity", "teacher": "born-again", "targets": "pairwise", "matching": "kl", "system": "standard"}
    assert found == {"preset": "ms+bar", **parts, "weight": 50.0, "ramp": "constant"}
    assert yaml.safe_load(printed(capsys, "presets", "ms", "x.npz"))["backbone"] == "features"


COMMANDS = ", ".join(cli.COMMANDS)
SWITCHED = ("x.npz --clusters false", "--clusters No x.npz", "x.npz --clusters=maybe", "a b --clusters maybe", "a b --clusters true")
MISTAKES = [
    *((f"evaluate {line}", "--clusters takes no value; --clusters turns it on, --no-clusters turns it off") for line in SWITCHED),
    ("trian", "there is no command 'trian'; did you mean train?"),
    ("zzz", f"there is no command 'zzz'; there are {COMMANDS}"),
    ("--epochs 3 train glyphs", f"--epochs must come after a command; there are {COMMANDS}"),
    ("info --formt json", "--formt is no option of obdsd info; did you mean --format?"),
    ("info --form json", "--form is no option of obdsd info; did you mean --format?"),
    ("info --formt=json", "--formt is no option of obdsd info; did you mean --format?"),
    ("info --zzz", "--zzz is no option of obdsd info; add --help to see what there is"),
    ("info -f json", "-f is no option of obdsd info; add --help to see what there is"),
    ("info --format xml", "--format xml must be one of table, json"),
    ("info --format", "--format needs a value: --format table|json"),
    ("info extra", "'extra' is one word too many: obdsd info [options]; the name of an option begins with --"),
    ("info --debug=yes", "--debug takes no value; --debug turns it on"),
    ("presets mss", "PRESET 'mss' is not known; did you mean ms?"),
    ("parts losss", "KIND losss is not known; did you mean loss?"),
    ("data chek glyphs", "ACTION chek must be one of check, get, suspects; did you mean check?"),
    ("data check glyphs --split-seed 1.5", "--split-seed 1.5 must be a whole number"),
    ("data check glyphs --split-seed -1", "--split-seed -1 must be from 0 to less than 2147483647"),
    ("data check glyphs --test-fraction x", "--test-fraction x must be a number"),
    ("data check", "DATA must be given: obdsd data ACTION DATA [DATA …] [options]"),
    ("data", "ACTION and DATA must be given: obdsd data ACTION DATA [DATA …] [options]"),
    ("embed model glyphs", "--out must be given: obdsd embed MODEL DATA --out TEXT [options]"),
    ("report", "RUNS must be given: obdsd report RUNS [RUNS …] [options]"),
    ("report a --out x b", "--out 'x' must end in .html; rename it"),
    ("evaluate a --ks 1 b c", "'c' is one word too many: obdsd evaluate MODEL [DATA] [options]; the name of an option begins with --"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "answer"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(line, answer, capsys):
    assert cli.main(line.split()) == 2
    assert capsys.readouterr() == ("", f"obdsd: {answer}\n")


@pytest.mark.parametrize(
    "line",
    [
        "model data --ks 1,2 --per-class --out s.json --no-clusters",
        "--ks 1,2 model --per-class data --no-clusters --out s.json",
        "--no-clusters model --out=s.json data --ks=1,2 --per-class",
        "--clusters --no-clusters --per-class --ks 3 --ks 1,2 --out s.json model data",
    ],
)
def test_options_may_stand_anywhere_and_the_last_counts(line, monkeypatch):
    given = []
    monkeypatch.setattr("obdsd.cli.evaluate.run", given.append)
    assert cli.main(["evaluate", *line.split()]) == 0
    assert given == [evaluate.Options("model", "data", ks=(1, 2), clusters=False, per_class=True, out="s.json")]


def test_debug_adds_the_traceback(capsys):
    assert cli.main(["info", "--format", "xml", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("obdsd: --format xml must be one of table, json\n")


RAISED = [
    (InputError("batch_size=110 must be a multiple of 4;\n\atry 112"), 2, r"batch_size=110 must be a multiple of 4;\n\x07try 112"),
    (FileNotFoundError(2, "No such file or directory", "photos\a"), 2, r"photos\x07: No such file or directory"),
    (ModuleNotFoundError(name="umap"), 2, 'umap is not installed; pip install "obdsd[umap]" installs it'),
    (MemoryError(), 2, "memory ran out (MemoryError); give smaller batches or fewer workers, or take a larger machine"),
    (
        RuntimeError("CUDA out of memory. Tried"),
        2,
        "memory ran out (CUDA out of memory. Tried); give smaller batches or fewer workers, or take a larger machine",
    ),
    (KeyboardInterrupt(), 130, "interrupted"),
    (Terminated(), 75, "terminated"),
    (Terminated("another process was lost"), 75, "another process was lost"),
]


@pytest.mark.parametrize(("error", "code", "printed"), RAISED)
def test_what_a_command_raises_becomes_an_exit_code(monkeypatch, capsys, error, code, printed):
    monkeypatch.setattr(info, "run", Mock(side_effect=error))
    assert cli.main(["info"]) == code
    assert capsys.readouterr().err == f"obdsd: {printed}\n"


def test_a_defect_is_not_taken_for_a_mistake(monkeypatch):
    monkeypatch.setattr(info, "run", Mock(side_effect=ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main(["info"])


def test_one_process_only(monkeypatch, capsys):
    for name, value in {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}.items():  # as torchrun does
        monkeypatch.setenv(name, value)
    assert cli.main(["info"]) == 2
    assert capsys.readouterr().err == "obdsd: info runs in one process, not in 2; start it without torchrun\n"


def offer(folder, content):
    """A package with a module of parts, as pip would leave it."""
    (folder / "made_up_parts.py").write_text(content)
    about = folder / "made_up-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[obdsd.parts]\nmine = made_up_parts\n")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("made_up_parts", None)


def test_packages_offer_parts_by_an_entry_point(path):
    offer(path, "loaded = True")
    assert "made_up_parts" not in sys.modules
    cli.load_outside_parts()
    assert sys.modules["made_up_parts"].loaded


FAILING = [("1 / 0", "ZeroDivisionError: division by zero"), ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'")]


@pytest.mark.parametrize(("content", "why"), FAILING)
def test_a_package_whose_parts_fail_is_named_in_one_line(path, capsys, content, why):
    offer(path, content)
    assert cli.main(["info"]) == 2
    said = f"obdsd: package made-up offers parts (made_up_parts) that cannot be loaded ({why}); mend or uninstall it\n"
    assert capsys.readouterr() == ("", said)
    assert cli.main(["info", "--help"]) == 0  # help imports nothing


def test_a_registered_part_that_cannot_be_built_is_named_in_one_line(tmp_path, monkeypatch, capsys):
    def build(dim, depth=2):
        """A loss whose author added a number to a text."""
        return "deep" + depth

    monkeypatch.setattr(LOSSES, "_homes", dict(LOSSES._homes))
    monkeypatch.setattr(LOSSES, "_outside", set())
    obdsd.register("loss", "deep", build)
    assert cli.main(["train", "glyphs", "--loss", "deep(depth=3)", "--out", str(tmp_path / "run")]) == 2
    why = 'TypeError: can only concatenate str (not "int") to str'
    *_, last = capsys.readouterr().err.splitlines()  # on a busy machine lines of progress come before
    assert last == f"obdsd: --loss deep(depth=3): its builder failed ({why}); mend it"
