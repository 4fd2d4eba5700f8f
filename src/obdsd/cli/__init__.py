"""The command line. Thin: a command is a module of this room, which imports its room only when it runs, so that --help is instant.

A command's module has a docstring whose first line is its help, a class `Options`, and `run(options)`.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from types import ModuleType

from obdsd import __version__
from obdsd.cli.parser import parse
from obdsd.errors import InputError, MissingExtra, Terminated, explain_missing
from obdsd.parts import suggestion
from obdsd.processes import first_process, processes, rank

COMMANDS = ("train", "compare", "report", "evaluate", "embed", "data", "reproduce", "parts", "info")
DONE, MISTAKE, TERMINATED, INTERRUPTED = 0, 2, Terminated.CODE, 130
HELP = """usage: obdsd COMMAND [options]

Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD).

{commands}

obdsd COMMAND --help tells more about one of them; obdsd --version shows the version.

Exit codes: 0 done; 1 a defect of obdsd (please report it with its traceback); 2 a mistake in the input, named in one line
(--debug adds the traceback); 75 ended by SIGTERM or by the loss of another process, to be resumed; 130 interrupted by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where a user's mistake becomes one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _run(words)
        return DONE
    except KeyboardInterrupt:
        _tell("interrupted")
        return INTERRUPTED
    except Terminated as end:
        _tell(str(end) or "terminated")
        return TERMINATED
    except BrokenPipeError:  # obdsd … | head: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (InputError, MissingExtra, OSError) as mistake:
        if "--debug" in words:
            traceback.print_exc()
        _tell(_one_line(mistake))
        return MISTAKE


def _run(words: Sequence[str]) -> None:
    if "--version" in words[:1]:
        return print(f"obdsd {__version__}")
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None:
        unknown = [word for word in words if word not in ("-h", "--help", "--debug")]
        if unknown:
            raise InputError(f"{unknown[0]} must come after a command; {', '.join(COMMANDS)} are there, obdsd --help tells more")
        lines = [f"  {command:<10} {(_module(command).__doc__ or '').partition(chr(10))[0]}" for command in COMMANDS]
        return print(HELP.format(commands="\n".join(lines)))
    if name not in COMMANDS:
        raise InputError(f"there is no command {name!r}; {suggestion(name, COMMANDS)}")
    if processes() > 1 and name != "train":
        raise InputError(f"{name} runs in one process, not in {processes()}; start it without torchrun")
    place = list(words).index(name)
    module = _module(name)
    with explain_missing():
        options = parse(name, module, [*words[:place], *words[place + 1 :]], load_outside_parts)
        if options is not None:
            module.run(options)


def load_outside_parts() -> None:
    """Import what other packages offer under the entry point `obdsd.parts`: their modules register parts."""
    for point in entry_points(group="obdsd.parts"):
        point.load()


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{command}")


def _tell(text: str) -> None:
    """A line on standard error. Of several processes the first speaks; the others only once they are connected, with their number."""
    distributed = sys.modules.get("torch.distributed")
    if first_process() or (distributed is not None and distributed.is_initialized()):
        print(f"obdsd{'' if first_process() else f', process {rank()}'}: {text}", file=sys.stderr)


def _one_line(mistake: Exception) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    # a loader's worker process sends its traceback along
    return " ".join(str(mistake).rpartition("obdsd.errors.InputError: ")[2].split())
