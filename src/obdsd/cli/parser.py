"""From the words of a command line to a command's options: flags and their help are made of the options' fields."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from obdsd.errors import InputError
from obdsd.files import read_mapping, to_yaml
from obdsd.options import TrainOptions, as_dict, converted, hints_of
from obdsd.parts import suggestion
from obdsd.spec import Spec

OMEGA = "Probability of continuing the walk, or the share that a control mixes in: short for that setting of --targets."


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints as one clear line."""

    def error(self, message: str) -> NoReturn:
        known = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
        if message.startswith("unrecognized arguments: "):
            word = message.removeprefix("unrecognized arguments: ").split()[0]
            flag = word.partition("=")[0]
            remedy = suggestion(flag, known) if flag.startswith("--") else "options begin with --"
            if flag in ("true", "false"):
                remedy = "a switch takes no value: --flip turns it on, --no-flip off"
            raise InputError(f"{word} is not known here; {remedy if remedy.startswith(('did', 'a', 'o')) else 'add --help to see what is'}")
        if message.startswith("the following arguments are required: "):
            raise InputError(f"{message.removeprefix('the following arguments are required: ')} must be given; add --help to see how")
        raise InputError(message.removeprefix("argument "))


def parse(command: str, module: ModuleType, words: Sequence[str], before: Callable[[], None]) -> Any:
    """The options of a command; None if only help or the configuration was asked for. `before` is called before options are made."""
    parser = parser_of(command, module)
    spelt = [_dashed(word) for word in words]
    if {"-h", "--help"} & {*spelt}:
        return parser.print_help()
    before()
    flags = vars(parser.parse_intermixed_args(spelt))
    flags.pop("debug", None)
    print_config, config = flags.pop("print_config", False), flags.pop("config", None)
    given = {**(_read_config(Path(config)) if config else {}), **flags}
    make = getattr(module, "make", lambda given: module.Options(**converted(module.Options, given)))
    missing = [name for name in _required(module.Options) if name not in given]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    options = make(given)
    if not print_config:
        return options
    return print(to_yaml(getattr(module, "configuration", as_dict)(options)), end="")


def parser_of(command: str, module: ModuleType) -> argparse.ArgumentParser:
    """A parser whose flags are the fields of the command's options, in their groups."""
    positional = [each for each in dataclasses.fields(module.Options) if each.metadata["positional"]]
    usage = " ".join(["obdsd", command, *(_placeholder(module.Options, each) for each in positional), "[options]"])
    parser = _Parser(
        prog=f"obdsd {command}",
        usage=usage,
        description=(module.__doc__ or "").strip(),
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {}
    for each in positional:
        several = typing.get_origin(hints_of(module.Options)[each.name]) is list
        parser.add_argument(each.name, nargs="*" if several else "?", metavar=each.name.upper(), help=_help(each))
    excluded: tuple[str, ...] | None = getattr(module, "WITHOUT", None)
    _add_flags(parser, groups, module.Options, {each.name for each in positional})
    if excluded is not None:
        _add_flags(parser, groups, TrainOptions, {*excluded, *(each.name for each in dataclasses.fields(module.Options))})
    if excluded is not None or module.Options is TrainOptions:
        parser.add_argument("--config", metavar="FILE", help="A YAML file of options; those on the command line count more.")
        parser.add_argument("--print-config", action="store_true", help="Show all options as YAML, and do nothing.")
    parser.add_argument("--debug", action="store_true", help="Show the traceback of a mistake too.")
    return parser


def _add_flags(parser: argparse.ArgumentParser, groups: dict[str, Any], kind: type, leave_out: set[str]) -> None:
    hints = hints_of(kind)
    for each in dataclasses.fields(kind):
        if each.name in leave_out or "sentence" not in each.metadata:
            continue
        title = each.metadata["group"]
        group = groups.setdefault(title, parser if title == "options" else parser.add_argument_group(title))
        flag = f"--{each.name.replace('_', '-')}"
        if hints[each.name] is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=_help(each))
        else:
            group.add_argument(flag, metavar=_metavar(hints[each.name]), help=_help(each))
        if kind is TrainOptions and each.name == "targets":
            group.add_argument("--omega", metavar="NUMBER", help=OMEGA)


def _metavar(kind: Any) -> str:
    choices = next((typing.get_args(one) for one in (kind, *typing.get_args(kind)) if typing.get_origin(one) is typing.Literal), ())
    if choices:
        return "|".join(map(str, choices))
    kinds = {kind, *typing.get_args(kind)}
    return "PART" if Spec in kinds else "NUMBER" if kinds & {int, float} else "TEXT"


def _help(each: dataclasses.Field[Any]) -> str:
    shown = each.default is not dataclasses.MISSING and each.default not in (None, "", ()) and not isinstance(each.default, bool)
    default = ",".join(map(str, each.default)) if isinstance(each.default, tuple) else each.default
    state = f" [{'on' if each.default else 'off'}]" if isinstance(each.default, bool) else ""
    return textwrap.dedent(each.metadata["sentence"] + (f" [{default}]" if shown else state)).replace("%", "%%")


def _placeholder(kind: type, each: dataclasses.Field[Any]) -> str:
    name = each.name.upper()
    if typing.get_origin(hints_of(kind)[each.name]) is list:
        return f"{name} [{name} …]"
    return name if each.default is dataclasses.MISSING else f"[{name}]"


def _required(kind: type) -> list[str]:
    return [each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING and "sentence" in each.metadata]


def _dashed(word: str) -> str:
    """--head_init is --head-init."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else word


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise InputError(f"config={path}: no such file; give a YAML file of options")
    return read_mapping(path)
