"""The command line. Thin: a command is a module of this room, imported only when it runs, so that --help is instant."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import re
import sys
import traceback
import typing
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import docstring_parser
import yaml
from jsonargparse import ArgumentError, ArgumentParser

from obdsd import __version__
from obdsd.errors import InputError, Terminated
from obdsd.options import DataOptions, EmbedOptions, EvaluateOptions, InfoOptions, ReportOptions
from obdsd.presets import compare_layers, configuration, train_layers
from obdsd.processes import first_process, processes, rank
from obdsd.settings import CompareOptions, ReproduceOptions, TrainOptions

PRINT_CONFIG = "--print_config"
ALONE = ("--help", "-h", "--debug", "--version", PRINT_CONFIG)  # take no value
DONE, DEFECT, MISTAKE, TERMINATED, INTERRUPTED = 0, 1, 2, Terminated.CODE, 130
EXIT_CODES = (
    f"exit codes: {DONE} done; {DEFECT} a defect of obdsd (please report it with its traceback); "
    f"{MISTAKE} a mistake in the input, named in one line; {TERMINATED} ended by SIGTERM or by the loss of another process, "
    f"to be resumed; {INTERRUPTED} interrupted by Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where a user's mistake becomes one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    arguments = _usual_spelling(words)
    parser = _parser()
    try:
        return _run(parser, arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Terminated as end:
        _say(str(end) or "terminated")
        return TERMINATED
    except BrokenPipeError:  # obdsd … | head: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (InputError, ArgumentError, OSError) as mistake:
        if "--debug" in arguments:
            traceback.print_exc()
        _say(f"{_one_line(mistake)}{_suggestion(arguments, str(mistake)) or _behind_a_switch(words, str(mistake))}")
        return MISTAKE


def _say(text: str) -> None:
    """A line on standard error. Of several processes the first speaks; the others only once they are connected, with their number."""
    distributed = sys.modules.get("torch.distributed")
    if first_process() or (distributed is not None and distributed.is_initialized()):
        print(f"obdsd{'' if first_process() else f', process {rank()}'}: {text}", file=sys.stderr)


class Command(NamedTuple):
    """Its options, the module of this room whose `run` takes them, and a line of help.

    `layers` says, for a command with --config, what lies between the defaults and what the user gave: a preset.
    """

    options: Any
    module: str
    summary: str
    layers: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def _run(parser: ArgumentParser, arguments: Sequence[str]) -> int:
    shown = [word for word in arguments if word != PRINT_CONFIG]
    try:
        chosen = parser.parse_args(shown, defaults=False)
    except UnicodeDecodeError as damage:
        raise InputError(f"config is no text in UTF-8 ({damage.reason} at byte {damage.start}); give a YAML file") from damage
    if chosen.get("command") is None:
        parser.print_help()
        return DONE
    command = COMMANDS[chosen.command]
    if processes() > 1 and chosen.command != "train":
        raise InputError(f"{chosen.command} runs in one process, not in {processes()}; start it without torchrun")
    given = {name: value for name, value in chosen[chosen.command].as_dict().items() if name not in ("debug", "config")}
    options = command.options(**{**(command.layers(given) if command.layers else {}), **given})
    if PRINT_CONFIG in arguments and command.layers:
        print(yaml.safe_dump(configuration(options), sort_keys=False), end="")
        return DONE
    importlib.import_module(f"{__name__}.{command.module}").run(options)
    return DONE


def _usual_spelling(arguments: Sequence[str]) -> list[str]:
    """Accept --allow-incomplete for --allow_incomplete, and a switch alone for a switch with `true`."""
    switches = _switches(arguments)
    spelt = []
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        name = _underscored(name)
        spelt.append(name + equals + value)
        if name in switches and not equals and following.lower() not in ("true", "false", "yes", "no"):
            spelt.append("true")
    return _in_order(spelt)


def _underscored(name: str) -> str:
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name


def _switches(arguments: Sequence[str]) -> set[str]:
    """The options of the command that are true or false."""
    command = next((COMMANDS[word] for word in arguments if word in COMMANDS), None)
    return {f"--{field.name}" for field in dataclasses.fields(command.options) if field.type == "bool"} if command else set()


def _in_order(arguments: Sequence[str]) -> list[str]:
    """--config first, so that all that is given beside it counts more, then the words without a dash, then the options."""
    first = next((place for place, word in enumerate(arguments) if word in COMMANDS), len(arguments)) + 1
    parts: dict[str, list[str]] = {"config": [], "words": [], "options": []}
    rest = list(arguments[first:])
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            parts["words"].append(word)
            continue
        kind = parts["config" if word.startswith("--config") else "options"]
        kind.append(word)
        if "=" not in word and word not in ALONE and rest:
            kind.append(rest.pop(0))
    return [*arguments[:first], *parts["config"], *parts["words"], *parts["options"]]


def _parser() -> ArgumentParser:
    description = "Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD)."
    parser = ArgumentParser(
        prog="obdsd", description=description, epilog=EXIT_CODES, version=__version__, exit_on_error=False, allow_abbrev=False
    )
    subcommands = parser.add_subcommands(required=False, dest="command", description="obdsd COMMAND --help tells more.")
    for name, command in COMMANDS.items():
        words = [field for field in dataclasses.fields(command.options) if not field.kw_only]  # these stand without a dash
        types, parameters = typing.get_type_hints(command.options), docstring_parser.parse(command.options.__doc__).params
        several = {word.name for word in words if typing.get_origin(types[word.name]) is list}
        usage = " ".join(["obdsd", name, *(word.name.upper() + " …" * (word.name in several) for word in words), "[options]"])
        subparser = ArgumentParser(description=command.summary, usage=usage, exit_on_error=False)
        sentences = {parameter.arg_name: parameter.description for parameter in parameters}
        for word in words:
            number: dict[str, Any] = {} if word.default is dataclasses.MISSING else {"nargs": "?"}
            kind = types[word.name]
            if word.name in several:
                kind, number = typing.get_args(kind)[0], {"nargs": "+"}
            subparser.add_argument(word.name, type=kind, help=sentences[word.name], **number)
        hidden = {field.name for field in dataclasses.fields(command.options) if field.metadata.get("hidden")}
        subparser.add_class_arguments(command.options, skip=hidden | {word.name for word in words})
        if command.layers:
            subparser.add_argument("--config", action="config", help="A YAML file of options; those on the command line count more.")
            subparser.epilog = "Defaults are the paper's for CUB-200-2011; preset and data change some: --print_config shows what counts."
        subcommands.add_subcommand(name, subparser, help=command.summary)
        _add_debug(subparser)
    _add_debug(parser)
    return parser


def _add_debug(parser: ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="Show the traceback of a mistake too.")


def _one_line(mistake: Exception) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    # a loader's worker process sends its traceback along
    message = " ".join(str(mistake).rpartition("obdsd.errors.InputError: ")[2].split())
    wrong_command = re.match(r"argument command: invalid choice: '(.*?)'", message)
    if wrong_command:
        return f"there is no command {wrong_command[1]!r}; there are {', '.join(COMMANDS)}"
    absent = re.fullmatch(r"the following arguments are required: (.*)", message)
    if absent:
        names = [name.split(".")[-1] for name in absent[1].split(", ")]
        return f"{', '.join(names)} must be given; add --help to see how"
    optional = r'Parser key "(.+)": Does not validate .*?Subtypes: \[(.+), <class .NoneType.>\] .* Given value: (.*)'  # a value or none
    wrong_value = re.fullmatch(r'Parser key "(.+)": Expected an? (.+)\. Got value: (.*)', message) or re.fullmatch(optional, message)
    if wrong_value is None:
        return message
    option, expected, value = wrong_value.groups()
    choices = re.fullmatch(r"typing\.Literal\[(.*)\]", expected)
    kinds = {"<class 'int'>": "a whole number", "<class 'float'>": "a number", "<class 'bool'>": "true or false"}
    if choices is None:
        return f"{option}={value} must be {kinds.get(expected, expected)}"
    close = difflib.get_close_matches(value, re.findall(r"'(.*?)'", choices[1]), n=1)
    return f"{option}={value} must be one of {choices[1]}{f'; did you mean {close[0]}?' if close else ''}"


def _suggestion(arguments: Sequence[str], message: str) -> str:
    """What a mistyped command or option was meant to be, if something is close."""
    commands = [name for name in COMMANDS if name in arguments]
    if "--resume" in arguments and "--resume" in message and {*commands} & {"compare", "reproduce"}:
        return f"; {commands[0]} goes on by itself, give the same command without it"
    known = ["--help", "--version", "--debug", *(() if commands else COMMANDS)]
    known += [f"--{field.name}" for name in commands for field in dataclasses.fields(COMMANDS[name].options)]
    for word in arguments:
        name = word.split("=")[0]
        close = difflib.get_close_matches(name, known, n=1)
        option_or_command = name.startswith("--") or not commands
        if option_or_command and name in message and name not in known and close:
            return f"; did you mean {close[0]}?"
    return ""


def _behind_a_switch(words: Sequence[str], message: str) -> str:
    """A switch alone is true, so a word behind it that is neither true nor false is left over."""
    left_over = message.removeprefix("unrecognized arguments: ").split()
    for word, following in pairwise(words):
        if _underscored(word) in _switches(words) and left_over == [following]:
            return f"; {word} is true or false"
    return ""


COMMANDS = {
    "info": Command(InfoOptions, "info", "Show versions and devices, for bug reports."),
    "data": Command(DataOptions, "data", "Check a collection before training on it: obdsd data check DATA."),
    "train": Command(TrainOptions, "train", "Train an embedding: obdsd train DATA --preset ms+obd-sd.", layers=train_layers),
    "compare": Command(CompareOptions, "compare", "Train several presets with several seeds and compare them.", layers=compare_layers),
    "reproduce": Command(ReproduceOptions, "reproduce", "Run a table of the paper: obdsd reproduce TABLE, or --list."),
    "report": Command(
        ReportOptions, "report", "Show finished runs or a comparison as one page: obdsd report RUN [RUN …] --out report.html."
    ),
    "evaluate": Command(EvaluateOptions, "evaluate", "Score a model on a collection, or an embeddings file alone."),
    "embed": Command(EmbedOptions, "embed", "Write the embeddings of a collection to a file: obdsd embed MODEL DATA --out x.parquet."),
}
