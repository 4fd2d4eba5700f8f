"""From the words of a command line to a command's options: flags and their help are made of the options' fields."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import itertools
import re
import textwrap
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from obdsd.catalogue import TABLES
from obdsd.errors import InputError
from obdsd.files import read_mapping, to_yaml
from obdsd.options import BY_PRESET, FIRST, TrainOptions, as_dict, check_limits, converted, hints_of
from obdsd.parts import suggestion
from obdsd.spec import Spec

WIDTH = 110
YES_OR_NO = ("true", "false", "yes", "no", "on", "off", "1", "0")
SURE = 0.85  # how alike two names are of which one is a typing mistake
OMEGA = "Sets omega of --targets: the probability of continuing the walk, or the share that a control mixes in."


class _Help(argparse.HelpFormatter):
    """Paragraphs and lines of one width, in which batch-diffusion stays whole."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=WIDTH)

    def _split_lines(self, text: str, width: int = WIDTH) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join("\n".join(self._split_lines(paragraph)) for paragraph in text.split("\n\n"))


def flags_of(command: str, module: ModuleType, words: Sequence[str]) -> dict[str, Any] | None:
    """What the words say, by option; None if they ask for help, which is then printed."""
    parser = parser_of(command, module)
    actions = parser._option_string_actions
    try:
        found, left = parser.parse_known_intermixed_args(words)
    except argparse.ArgumentError as mistake:  # of one kind here: a flag with a value too many, or without one
        raise InputError(_value_rule(actions[str(mistake.argument_name).partition("/")[0]])) from mistake
    if "help" in found or "help_all" in found:
        parser_of(command, module, everything="help_all" in found).print_help()
        return None
    for flag, word in itertools.pairwise(words):
        is_switch = flag in actions and actions[flag].nargs == 0
        if is_switch and not word.startswith("-") and (word in left or word.lower() in YES_OR_NO):
            raise InputError(_value_rule(actions[flag]))
    unknown = next((word for word in left if word.startswith("-")), None)
    if unknown is not None:
        raise InputError(_unknown(unknown.partition("=")[0], [*actions], parser.prog, getattr(module, "WITHOUT", {})))
    if left:
        raise InputError(f"{left[0]!r} is one word too many: {parser.usage}; the name of an option begins with --")
    return vars(found)


def options_of(command: str, module: ModuleType, flags: Mapping[str, Any]) -> Any:
    """The options of a command; None if only the configuration was asked for, which is then printed."""
    given = {name: value for name, value in flags.items() if name not in ("config", "print_config", "debug")}
    if "config" in flags:
        given = {**_read_config(Path(flags["config"]).expanduser()), **given}
    if hasattr(module, "complete"):
        given = module.complete(given)
    required = [each for each in dataclasses.fields(module.Options) if _is_required(each) and given.get(each.name) in (None, [])]
    missing = [each.name.upper() if each.metadata["positional"] else f"--{each.name}" for each in required]
    if missing:
        raise InputError(f"{' and '.join(missing)} must be given: {_usage(command, module)}")
    if "print_config" not in flags and hasattr(module, "look"):
        module.look(given)
    make = getattr(module, "make", lambda given: module.Options(**converted(module.Options, given)))
    options = make(given)
    check_limits(module.Options, vars(options))
    if "print_config" not in flags:
        return options
    return print(to_yaml(getattr(module, "configuration", as_dict)(options)), end="")


def parser_of(command: str, module: ModuleType, everything: bool = True) -> argparse.ArgumentParser:
    """A parser whose flags are the fields of the command's options, in their groups. Its help shows of the options of a training the first,
    or `everything`."""
    rest = "" if everything or not _trains(module) else "\n\nThese are the usual options; --help-all shows all."
    parser = argparse.ArgumentParser(
        prog=f"obdsd {command}",
        usage=_usage(command, module),
        description=module.__doc__,
        epilog=getattr(module, "EPILOG", "") + rest,
        formatter_class=_Help,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    parser._negative_number_matcher = re.compile(r"-\.?\d|-inf|-nan")  # argparse's own takes -1e-3 for a flag
    own = {each.name: each for each in dataclasses.fields(module.Options)}
    for each in own.values():
        if each.metadata["positional"]:
            several = typing.get_origin(hints_of(module.Options)[each.name]) is list
            parser.add_argument(each.name, nargs="*" if several else "?", metavar=each.name.upper(), help=_help(each))
    _add_flags(parser, module.Options, set(), everything)
    without = getattr(module, "WITHOUT", None)
    if without is not None:  # the other options of a training are options here, too
        _add_flags(parser, TrainOptions, {*without, *own}, everything, "every row: ")
    common = parser.add_argument_group("help and configuration")
    if _trains(module):
        common.add_argument("--config", metavar="FILE", help="A YAML file of options, such as a run's config.yaml; flags count more.")
        common.add_argument("--print-config", action="store_true", help="Show all options as YAML, and do nothing else.")
    common.add_argument("--debug", action="store_true", help="Show the traceback of a mistake, too.")
    common.add_argument("-h", "--help", action="store_true", help="Show this text.")
    if _trains(module):
        common.add_argument("--help-all", action="store_true", help="Show all options.")
    return parser


def _trains(module: ModuleType) -> bool:
    """Whether the options of a training are options of the command."""
    return module.Options is TrainOptions or hasattr(module, "WITHOUT")


def _add_flags(parser: argparse.ArgumentParser, kind: type, leave_out: set[str], everything: bool, of: str = "") -> None:
    hints, groups = hints_of(kind), dict[str, Any]()
    for each in dataclasses.fields(kind):
        if each.name in leave_out or each.metadata["positional"] or "sentence" not in each.metadata:
            continue
        title = of + each.metadata["group"]
        group = groups[title] = groups.get(title) or parser.add_argument_group(title)
        is_switch, metavar = bool in (hints[each.name], *typing.get_args(hints[each.name])), _metavar(hints[each.name])
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if is_switch else {"metavar": metavar}
        is_shown = everything or kind is not TrainOptions or each.name in FIRST
        short = [f"-{each.name}"] if len(each.name) == 1 else []
        group.add_argument(f"--{each.name.replace('_', '-')}", *short, help=_help(each) if is_shown else argparse.SUPPRESS, **how)
        if kind is TrainOptions and each.name == "targets":
            group.add_argument("--omega", metavar="NUMBER", help=OMEGA if is_shown else argparse.SUPPRESS)


def _usage(command: str, module: ModuleType) -> str:
    words = ["obdsd", command]
    for each in dataclasses.fields(module.Options):
        kind, name = hints_of(module.Options)[each.name], each.name.upper()
        if each.metadata["positional"]:
            words.append(f"{name} [{name} …]" if typing.get_origin(kind) is list else name if _is_required(each) else f"[{name}]")
        elif _is_required(each):
            words.append(f"--{each.name} {_metavar(kind)}")
    return " ".join([*words, "[options]"])


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and "sentence" in each.metadata


def _metavar(kind: Any) -> str:
    kinds = (kind, *typing.get_args(kind))
    for each in kinds:
        if typing.get_origin(each) is typing.Literal:
            return "|".join(map(str, typing.get_args(each)))
    several = typing.get_origin(kind) is tuple
    return "PART" if Spec in kinds else "NUMBER" + ",…" * several if {int, float} & {*kinds} else "TEXT" + ",…" * several


def _help(each: dataclasses.Field[Any]) -> str:
    """The option's sentence and its default."""
    default = each.default
    if isinstance(default, bool):
        default = "on" if default else "off"
    elif isinstance(default, float):
        default = f"{default:g}"
    elif isinstance(default, tuple):
        default = ",".join(map(str, default))
    if each.name in BY_PRESET and default not in (None, dataclasses.MISSING):
        default = f"{default} in the paper"
    elif each.name == "preset" and each.default:
        default = "recommended"
    shown = "" if default is dataclasses.MISSING or default in (None, "") else f" [{default}]"
    return (each.metadata["sentence"] + shown).replace("%", "%%")


def _value_rule(action: argparse.Action) -> str:
    flag, *others = action.option_strings
    if action.nargs != 0:
        return f"{flag} needs a value: {flag} {action.metavar}"
    off = f", {others[0]} turns it off" if isinstance(action, argparse.BooleanOptionalAction) else ""
    return f"{flag} takes no value; {flag} turns it on{off}"


def _unknown(flag: str, known: Sequence[str], prog: str, elsewhere: Mapping[str, str]) -> str:
    """What is wrong with a flag that there is not: one of another command, a part's setting, a typing mistake."""
    name = flag.lstrip("-").replace("-", "_")
    if name in elsewhere:
        return f"{flag} is no option of {prog}; {elsewhere[name]}"
    if close := difflib.get_close_matches(flag, known, n=1, cutoff=SURE):  # no part's setting is so near, and parts take a second to import
        return f"{flag} is no option of {prog}; did you mean {close[0]}?"
    parts = [(kind, part) for kind, table in TABLES.items() if f"--{kind}" in known for part in table.names if name in table.settings(part)]
    if parts:
        forms = [f'--{kind} "{part}({name}=…)"' for kind, part in parts]
        return f"{flag} is a setting of a part; write {' or '.join(forms)}, with the quotes"
    return f"{flag} is no option of {prog}; {suggestion(flag, known, 'add --help to see what there is')}"


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"config={path}: no such file; give a YAML file of options")
    from obdsd.presets import beyond_preset

    return beyond_preset(read_mapping(path))
