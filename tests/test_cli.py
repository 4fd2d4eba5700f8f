"""The command line as a user meets it: a real process, its exit code, and what it prints."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import obdsd
from obdsd import cli
from obdsd.cli import info
from obdsd.errors import InputError

SOURCE = str(Path(obdsd.__file__).parent.parent)  # these files, whatever is installed


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "obdsd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200", "PYTHONPATH": SOURCE}, check=False)


def test_version():
    assert (run("--version").returncode, run("--version").stdout) == (0, f"obdsd {obdsd.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], []], ids=["--help", "nothing"])
def test_help_teaches_commands_and_exit_codes(arguments):
    result = run(*arguments)
    assert result.returncode == 0
    for name, command in cli.COMMANDS.items():
        assert f"{name} " in result.stdout
        assert command.summary in result.stdout
    assert cli.EXIT_CODES in " ".join(result.stdout.split())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_option_is_explained(name):
    result = run(name, "--help")
    assert result.returncode == 0
    help_text = " ".join(result.stdout.split())
    for field in cli.COMMANDS[name].options.__dataclass_fields__:
        sentence = re.split(rf"\s(?:--)?{field}\s", help_text.split(cli.COMMANDS[name].summary)[-1], maxsplit=1)[-1]
        assert re.split(r"\((?:type|required)", sentence)[0].strip().endswith("."), f"{field} has no sentence"


def test_help_needs_no_torch():
    code = "import sys; from obdsd import cli; cli._parser().format_help(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_help_comes_in_under_a_second():
    def seconds() -> float:
        start = time.perf_counter()
        run("--help")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 1.0  # measured 0.15; five tries on a busy machine


def test_info_as_json_and_as_a_table():
    facts = json.loads(run("info", "--format", "json").stdout)
    assert facts["obdsd"] == obdsd.__version__
    table = run("info").stdout
    for name in ("python", "torch", "accelerator"):
        assert f"{facts[name]}\n" in table


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["inof"],
            "there is no command 'inof'; there are info, data, train, compare, reproduce, report, evaluate, embed; did you mean info?",
        ),
        (["info", "--formt", "json"], "unrecognized arguments: --formt json; did you mean --format?"),
        (["info", "--form", "json"], "unrecognized arguments: --form json; did you mean --format?"),
        (["info", "--formt=json"], "unrecognized arguments: --formt=json; did you mean --format?"),
        (["info", "--format", "xml"], "format=xml must be one of 'table', 'json'"),
        (["data", "chek", "glyphs"], "action=chek must be one of 'check'; did you mean check?"),
        (["data", "check", "glyphs", "--split-seed", "1.5"], "split_seed=1.5 must be a whole number"),
        (["data", "check", "glyphs", "--test-fraction", "x"], "test_fraction=x must be a number"),
        (["data", "check", "glyphs", "--allow-incomplete=maybe"], "allow_incomplete=maybe must be true or false"),
        (["data", "check"], "data must be given; add --help to see how"),
        (["data"], "action, data must be given; add --help to see how"),
        (["info", "--format"], "argument --format: expected one argument"),
        (["info", "extra"], "unrecognized arguments: extra"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, line):
    result = run(*arguments)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"obdsd: {line}\n")


def test_debug_adds_the_traceback():
    result = run("info", "--format", "xml", "--debug")
    assert result.returncode == 2
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("obdsd: format=xml must be one of 'table', 'json'\n")


class Fails:
    """In the place of a command's `run`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, options: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (
            InputError("data.batch_size=110 must be a multiple of 4;\ntry 112"),
            2,
            "obdsd: data.batch_size=110 must be a multiple of 4; try 112\n",
        ),
        (FileNotFoundError(2, "No such file or directory", "photos"), 2, "obdsd: photos: No such file or directory\n"),
        (KeyboardInterrupt(), 130, "obdsd: interrupted\n"),
    ],
    ids=["input", "file", "ctrl-c"],
)
def test_what_a_command_raises_becomes_an_exit_code(monkeypatch, capsys, error, code, printed):
    monkeypatch.setattr(info, "run", Fails(error))
    assert cli.main(["info"]) == code
    assert capsys.readouterr().err == printed


def test_a_defect_is_not_taken_for_a_mistake(monkeypatch):
    monkeypatch.setattr(info, "run", Fails(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main(["info"])


def test_options_may_stand_anywhere():
    given = ["evaluate", "model", "--ks", "1", "data", "--per-class", "--debug", "--config=x"]
    assert cli._usual_spelling(given) == ["evaluate", "--config=x", "model", "data", "--ks", "1", "--per_class", "true", "--debug"]
