"""The command line. Thin: a command imports what it needs only when it runs, so that --help is instant."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from jsonargparse import ArgumentError, ArgumentParser

from obdsd import __version__
from obdsd.errors import InputError
from obdsd.options import InfoOptions

DONE, DEFECT, MISTAKE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = (
    f"exit codes: {DONE} done; {DEFECT} a defect of obdsd (please report it with its traceback); "
    f"{MISTAKE} a mistake in the input, named in one line; {INTERRUPTED} interrupted by Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where a user's mistake becomes one line."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
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
    options: Any
    run: Callable[[Any], None]
    summary: str


def _run(parser: ArgumentParser, arguments: Sequence[str]) -> int:
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return DONE
    command = COMMANDS[chosen.command]
    fields = chosen[chosen.command].as_dict()
    fields.pop("debug")
    command.run(command.options(**fields))
    return DONE


def _parser() -> ArgumentParser:
    description = "Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD)."
    parser = ArgumentParser(prog="obdsd", description=description, epilog=EXIT_CODES, version=__version__, exit_on_error=False)
    subcommands = parser.add_subcommands(required=False, dest="command", description="obdsd COMMAND --help tells more.")
    for name, command in COMMANDS.items():
        subparser = ArgumentParser(description=command.summary, exit_on_error=False)
        subparser.add_class_arguments(command.options)
        subcommands.add_subcommand(name, subparser, help=command.summary)
        _add_debug(subparser)
    _add_debug(parser)
    return parser


def _add_debug(parser: ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="Show the traceback of a mistake too.")


def _one_line(mistake: Exception) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    message = " ".join(str(mistake).split())
    wrong_value = re.fullmatch(r'Parser key "(.+)": Expected an? (.+)\. Got value: (.*)', message)
    if wrong_value is None:
        return message
    option, expected, value = wrong_value.groups()
    choices = re.fullmatch(r"typing\.Literal\[(.*)\]", expected)
    return f"--{option}={value} must be {'one of ' + choices[1] if choices else expected}"


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


def _info(options: InfoOptions) -> None:
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True) if hasattr(torch, "accelerator") else None
    facts = {
        "obdsd": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        "accelerator": str(accelerator or "none (CPU)"),
        **{
            name: _version_or_missing(name)
            for name in ("torch", "torchvision", "timm", "pytorch-metric-learning", "lightning", "faiss-cpu")
        },
    }
    if options.format == "json":
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:{width}}  {fact}")


def _version_or_missing(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


COMMANDS = {"info": Command(InfoOptions, _info, "Show versions and devices, for bug reports.")}
