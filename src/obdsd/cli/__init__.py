"""The command line. Thin: a command is a module of this room, imported only when it runs, so that --help is instant."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import docstring_parser
from jsonargparse import ArgumentError, ArgumentParser

from obdsd import __version__
from obdsd.errors import InputError
from obdsd.options import DataOptions, InfoOptions

DONE, DEFECT, MISTAKE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = (
    f"exit codes: {DONE} done; {DEFECT} a defect of obdsd (please report it with its traceback); "
    f"{MISTAKE} a mistake in the input, named in one line; {INTERRUPTED} interrupted by Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where a user's mistake becomes one line."""
    arguments = _usual_spelling(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    try:
        return _run(parser, arguments)
    except KeyboardInterrupt:
        print("obdsd: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (InputError, ArgumentError, OSError) as mistake:
        if "--debug" in arguments:
            traceback.print_exc()
        print(f"obdsd: {_one_line(mistake)}{_suggestion(arguments, str(mistake))}", file=sys.stderr)
        return MISTAKE


class Command(NamedTuple):
    """Its options, the module of this room whose `run` takes them, and a line of help."""

    options: Any
    module: str
    summary: str


def _run(parser: ArgumentParser, arguments: Sequence[str]) -> int:
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return DONE
    command = COMMANDS[chosen.command]
    fields = chosen[chosen.command].as_dict()
    fields.pop("debug")
    importlib.import_module(f"{__name__}.{command.module}").run(command.options(**fields))
    return DONE


def _usual_spelling(arguments: Sequence[str]) -> list[str]:
    """Accept --allow-incomplete for --allow_incomplete, and a switch alone for a switch with `true`."""
    command = next((COMMANDS[word] for word in arguments if word in COMMANDS), None)
    switches = {f"--{field.name}" for field in dataclasses.fields(command.options) if field.type == "bool"} if command else set()
    spelt = []
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        name = f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
        spelt.append(name + equals + value)
        if name in switches and not equals and following.lower() not in ("true", "false"):
            spelt.append("true")
    return spelt


def _parser() -> ArgumentParser:
    description = "Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD)."
    parser = ArgumentParser(prog="obdsd", description=description, epilog=EXIT_CODES, version=__version__, exit_on_error=False)
    subcommands = parser.add_subcommands(required=False, dest="command", description="obdsd COMMAND --help tells more.")
    for name, command in COMMANDS.items():
        subparser = ArgumentParser(description=command.summary, exit_on_error=False)
        optional = {field.name for field in dataclasses.fields(command.options) if _is_optional_word(field)}
        subparser.add_class_arguments(command.options, as_positional=True, skip=optional)
        for parameter in docstring_parser.parse(command.options.__doc__).params:
            if parameter.arg_name in optional:
                subparser.add_argument(parameter.arg_name, nargs="?", help=parameter.description)
        subcommands.add_subcommand(name, subparser, help=command.summary)
        _add_debug(subparser)
    _add_debug(parser)
    return parser


def _is_optional_word(field: dataclasses.Field[Any]) -> bool:
    """A field that stands without a dash and may be left out."""
    return not field.kw_only and field.default is not dataclasses.MISSING


def _add_debug(parser: ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="Show the traceback of a mistake too.")


def _one_line(mistake: Exception) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    message = " ".join(str(mistake).split())
    wrong_command = re.match(r"argument command: invalid choice: '(.*?)'", message)
    if wrong_command:
        return f"there is no command {wrong_command[1]!r}; there are {', '.join(COMMANDS)}"
    absent = re.fullmatch(r"the following arguments are required: (.*)", message)
    if absent:
        names = [name.split(".")[-1] for name in absent[1].split(", ")]
        return f"{', '.join(names)} must be given; add --help to see how"
    wrong_value = re.fullmatch(r'Parser key "(.+)": Expected an? (.+)\. Got value: (.*)', message)
    if wrong_value is None:
        return message
    option, expected, value = wrong_value.groups()
    choices = re.fullmatch(r"typing\.Literal\[(.*)\]", expected)
    kinds = {"<class 'int'>": "a whole number", "<class 'float'>": "a number", "<class 'bool'>": "true or false"}
    return f"{option}={value} must be {'one of ' + choices[1] if choices else kinds.get(expected, expected)}"


def _suggestion(arguments: Sequence[str], message: str) -> str:
    """What a mistyped command or option was meant to be, if something is close."""
    known = [*COMMANDS, "--help", "--version", "--debug"]
    known += [f"--{field.name}" for name in COMMANDS if name in arguments for field in dataclasses.fields(COMMANDS[name].options)]
    for word in arguments:
        name = word.split("=")[0]
        close = difflib.get_close_matches(name, known, n=1)
        if name in message and name not in known and close:
            return f"; did you mean {close[0]}?"
    return ""


COMMANDS = {
    "info": Command(InfoOptions, "info", "Show versions and devices, for bug reports."),
    "data": Command(DataOptions, "data", "Check a collection before training on it: obdsd data check DATA."),
}
