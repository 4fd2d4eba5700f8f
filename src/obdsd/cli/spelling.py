"""Options in messages, spelled as people type them. Python says `val_fraction=0.2`, the command line says `--val-fraction 0.2`."""

from __future__ import annotations

import argparse
import re

_NOT_OPTIONS = r"(?<=\w)\((?:[^()]|\([^()]*\))*\)|(?<![^\s=(])'[^']*'"  # settings of a part, margin(beta=0.6), and what is quoted


def as_typed(message: str, parser: argparse.ArgumentParser) -> str:
    """The message of a command's mistake with the options of its parser as flags, and what has no flag as in its usage: DATA.

    A name counts where a value follows it (`epochs=3`), or if it can be no English word (`val_fraction`).
    """
    actions = {action.dest: action for action in parser._actions}
    names = "|".join(sorted(actions, key=len, reverse=True))
    option = rf"(?<![^\s(])(?P<name>{names})(?:(?P<equals>=\s?)(?P<switch>(?i:true|false)\b)?|(?!\w))"

    def flag(found: re.Match[str]) -> str:
        name, has_value = found["name"], found["equals"] is not None
        if name is None or not (has_value or "_" in name):
            return found[0]
        action = actions[name]
        on, *off = action.option_strings or [str(action.metavar)]
        if action.nargs == 0 and found["switch"]:
            return off[0] if found["switch"].lower() == "false" else on
        return f"{on} {found['switch'] or ''}" if has_value else on

    return re.sub(rf"{_NOT_OPTIONS}|{option}", flag, message)
