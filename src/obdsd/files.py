"""Files that are whole or not there: the one way in which this project writes."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from obdsd.errors import InputError

MOST_VALUES = 100_000  # in a YAML file
CHUNK = 1 << 20  # bytes of a file that are read at once
_MARK = "obdsd-"  # in the names of files that are being written


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write, which takes the place of `path` once it is complete and on the disk.

    If anything fails before that, a full disk or a kill, what was at `path` stays as it was. Folders are made as needed. What earlier
    writers that were killed left in the folder goes.
    """
    temporary = path.with_name(f".{path.name}.{_MARK}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with _locked(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as failure:
        reason = failure.strerror or str(failure)
        raise InputError(f"{path}: cannot be written ({reason}); make room or choose another place, nothing there was changed") from failure
    finally:
        with suppress(OSError):
            temporary.unlink()


def _locked(path: Path) -> IO[bytes]:
    """A new file that is locked as long as it is open, if the disk knows locks: so nobody takes it for a leftover."""
    while True:
        file = open(path, "wb")  # noqa: SIM115
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked


def _remove_leftovers(folder: Path) -> None:
    """Files of writers that are gone: nobody holds their lock."""
    for left in folder.glob(f".*.{_MARK}[0-9]*"):
        with suppress(OSError):
            if stat.S_ISREG(left.lstat().st_mode):
                with open(left, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()


def cache_folder() -> Path:
    """Where what can be found out again is kept: `$OBDSD_CACHE`, else `obdsd` in the user's cache folder."""
    if own := os.environ.get("OBDSD_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obdsd"


def check_file(path: Path) -> None:
    """Refuse what is no file to be read: a pipe would be waited for without end."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: {'is no regular file' if os.path.exists(path) else 'no such file'}; check the path")


def file_digest(path: Path, before: bytes = b"") -> bytes:
    """16 bytes that tell a whole file, and what stands before it, from all others."""
    digest = hashlib.blake2b(before, digest_size=16)
    with path.open("rb", buffering=0) as file:
        while content := file.read(CHUNK):
            digest.update(content)
    return digest.digest()


def check_place(path: Path) -> None:
    """Refuse at once, before long work for it, a path where no file could be written."""
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if path.is_dir() or not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "it is a folder" if path.is_dir() else f"{nearest} is no folder that can be written to"
        raise InputError(f"{path}: cannot be written ({reason}); choose another place")


def write_json(path: Path, content: Any) -> None:
    """Indented JSON that every reader takes: no NaN, no Infinity."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    with replacing(path) as file:
        file.write(
            f"{text}\n".encode(errors="backslashreplace")
        )  # names of files may hold bytes that are no text: \udcff, as JSON writes it


def csv_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as CSV, none of which is a formula to a spreadsheet."""
    text = io.StringIO()
    csv.writer(text).writerows([_inert(cell) for cell in row] for row in rows)
    return text.getvalue()


def _inert(cell: str) -> str:
    """What a spreadsheet would take for a formula is put behind an apostrophe; signed numbers and intervals are none."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not re.fullmatch(r"[-+\d.%to ]*", cell) else cell


def append_line(path: Path, content: dict[str, Any], remedy: str) -> None:
    """A line of JSON at a file's end, on the disk when this returns. A line that was cut off before it stays apart from it."""
    try:
        cut_off = path.exists() and not path.read_bytes().endswith(b"\n")
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n" * cut_off + json.dumps(content, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as failure:
        raise InputError(f"{path}: cannot be written ({failure.strerror}); make room, {remedy}") from failure


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What a file of JSON lines holds, nothing if it is not there; a line that was cut off while it was written is left out."""
    lines = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        with suppress(ValueError, RecursionError):
            lines.append(json.loads(line))
    return [line for line in lines if isinstance(line, dict)]


def to_yaml(content: Any) -> str:
    """YAML that people read: in the given order, in Unicode where that is read as it was."""
    import yaml

    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text if yaml.safe_load(text) == content else yaml.safe_dump(content, sort_keys=False)


def read_mapping(path: Path) -> dict[str, Any]:
    """A file of named fields: JSON by its suffix, else YAML."""
    import yaml

    try:
        text = path.read_bytes().decode()
        content = _from_json(path, text) if path.suffix == ".json" else _bounded(_from_yaml(path, text))
    except InputError:
        raise
    except yaml.MarkedYAMLError as damage:
        line = f" in line {damage.problem_mark.line + 1}" if damage.problem_mark else ""
        raise InputError(f"{path}: is no YAML ({damage.problem}{line}); mend or restore it") from damage
    except Exception as damage:  # nonsense that is nearly YAML brings out errors of any kind
        reason = " ".join(str(damage).split())[:120] or type(damage).__name__
        raise InputError(f"{path}: cannot be read ({reason}); mend or restore it") from damage
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold named fields, as epochs: 3; mend or restore it")
    return {str(name): value for name, value in content.items()}


def _from_json(path: Path, text: str) -> Any:
    """What JSON says. A name that is given twice in one place is refused; json itself takes the last in silence."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise InputError(f"{path}: {reprlib.repr(name)[1:-1]} is given twice; keep one")
            names.add(name)
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def _from_yaml(path: Path, text: str) -> Any:
    """What YAML says. A name that is given twice in one place is refused; yaml itself takes the last in silence."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: Any) -> Any:
            node, lines = super().compose_mapping_node(anchor), dict[str, int]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                line = key.start_mark.line + 1
                if key.value in lines:
                    name = reprlib.repr(key.value)[1:-1]
                    raise InputError(f"{path}: line {line}: {name} is given twice, first in line {lines[key.value]}; keep one")
                lines[key.value] = line
            return node

    return yaml.load(text, Loader)


def _bounded(content: Any) -> Any:
    """The content, unless its aliases stand for more than anybody could print: a few lines may stand for terabytes."""
    waiting, values = [content], 0
    while waiting:
        values, value = values + 1, waiting.pop()
        if values > MOST_VALUES:
            raise ValueError(f"has more than {MOST_VALUES} values")
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    return content


def check_format(path: Path, what: str, content: Mapping[str, Any], number: int, remedy: str) -> None:
    """Refuse what another version of obdsd wrote, in every reader alike. What does not say its format has the first."""
    written = content.get("format", 1)
    if written != number or isinstance(written, bool):
        newer = isinstance(written, (int, float)) and written > number
        other = f"another version of obdsd (format {reprlib.repr(written)}, not {number})"
        raise InputError(f"{path}: is {'an' if what[0] in 'aeio' else 'a'} {what} of {other}; {'update obdsd' if newer else remedy}")
