"""The options of every command as frozen dataclasses: the command line is made of them. Imports no torch, so that --help is instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Options of `obdsd info`.

    Args:
        format: A table for people or JSON for programs and bug reports.
    """

    format: Literal["table", "json"] = "table"
