"""The command line. Thin: a command is a module of this room, which imports its room only when it runs, so that --help is instant.

A command's module has a docstring whose first line is its help, a class `Options`, and `run(options)`. It may have `complete(given)`, which
fills in what follows from the rest, `look(given)`, which tells what is wrong before anything is imported for it, and `make(given)`, which
makes its options.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from types import ModuleType

from obdsd import __version__
from obdsd.cli.parser import flags_of, options_of, parser_of
from obdsd.cli.spelling import as_typed
from obdsd.errors import InputError, MissingExtra, SharedError, Terminated, explain_missing, explain_shortage, printable
from obdsd.parts import suggestion
from obdsd.processes import first_here, first_process, keep_memory, let_threads_sleep, processes, rank
from obdsd.stopping import Stop

COMMANDS = (
    "train", "compare", "report", "evaluate", "embed", "export", "index", "search", "serve", "calibrate", "join", "verify", "data",
    "reproduce", "presets", "parts", "info",
)  # fmt: skip
DONE, MISTAKE, TERMINATED, INTERRUPTED = 0, 2, Terminated.CODE, 130
HELP = """usage: obdsd COMMAND [options]

Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD).

{commands}

obdsd COMMAND --help tells more about one of them; obdsd --version shows the version.

exit codes:
  0    Done.
  1    A defect of obdsd; please report it with its traceback.
  2    A mistake in the input, named in one line; --debug adds the traceback.
  75   Ended by SIGTERM, or by the loss of another process. The same command goes on (a training with --resume).
  130  Interrupted by Ctrl-C. The run can be resumed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where a user's mistake becomes one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where there is no é, as \xe9
    try:
        with Stop():
            _run(words)
        return DONE
    except KeyboardInterrupt:
        _tell("interrupted")
        return INTERRUPTED
    except Terminated as end:
        _tell(end.reason)
        return TERMINATED
    except BrokenPipeError:  # obdsd … | head: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (InputError, MissingExtra, OSError) as mistake:
        if "--debug" in words:
            traceback.print_exc()
        if not isinstance(mistake, SharedError) or first_here():
            _tell(_one_line(mistake, words[0]))
        return MISTAKE


def run_and_exit() -> None:
    """The program `obdsd`. Asked to end, it ends at once: libraries may be in the middle of something, and fail if Python cleans up."""
    let_threads_sleep()
    keep_memory()
    code = main()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done; Python may take a second to end
    if code == TERMINATED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run(words: Sequence[str]) -> None:
    for word in words:
        if word.encode(errors="ignore").decode() != word:  # it could be opened, but not be written into a run's files
            raise InputError(f"{word}: is not UTF-8; rename it, or set PYTHONUTF8=1 where the locale has another encoding")
    name, *others = words or ["--help"]
    if name == "--version":
        return print(f"obdsd {__version__}")
    if name in ("-h", "--help", "help"):
        return print(HELP.format(commands="\n".join(f"  {command:<10} {_summary(command)}" for command in COMMANDS)))
    if name.startswith("-"):
        raise InputError(f"{name} must come after a command; there are {', '.join(COMMANDS)}")
    if name not in COMMANDS:
        raise InputError(f"there is no command {name!r}; {suggestion(name, COMMANDS)}")
    if processes() > 1 and name != "train":
        raise InputError(f"{name} runs in one process, not in {processes()}; start it without torchrun")
    module = _module(name)
    with explain_missing(), explain_shortage():
        flags = flags_of(name, module, others)
        if flags is None:
            return
        load_outside_parts()
        options = options_of(name, module, flags)
        if options is not None:
            module.run(options)


def load_outside_parts() -> None:
    """Import what other packages offer under the entry point `obdsd.parts`: their modules register parts."""
    for point in entry_points(group="obdsd.parts"):
        try:
            point.load()
        except Exception as fault:
            package = point.dist.name if point.dist else point.value
            offer = f"package {package} offers parts ({point.value}) that cannot be loaded"
            raise InputError(f"{offer} ({type(fault).__name__}: {fault}); mend or uninstall it") from fault


def _summary(command: str) -> str:
    """The first line of a command's module, but for its example."""
    return (_module(command).__doc__ or "").partition(":")[0] + "."


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{command}")


def _tell(text: str) -> None:
    """A line on standard error. Of several processes the first speaks; the others only once they are connected, with their number."""
    distributed = sys.modules.get("torch.distributed")
    if first_process() or (distributed is not None and distributed.is_initialized()):
        print(f"obdsd{'' if first_process() else f', process {rank()}'}: {text}", file=sys.stderr)


def _one_line(mistake: Exception, command: str) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return printable(f"{mistake.filename}: {mistake.strerror}")
    line = printable(" ".join(str(mistake).split()))
    return as_typed(line, parser_of(command, _module(command))) if command in COMMANDS else line
