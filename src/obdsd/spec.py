"""The one written form of a part and its settings, as in Python: `margin(beta=0.6, sampling=random)`. Only names and literals are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from obdsd.errors import InputError

LONGEST = 4000  # characters; no part needs more
DEEPEST = 20  # parts and lists inside each other

_TOKEN = re.compile(r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<word>[^\s()\[\],="']+)|(?P<mark>[()\[\],=]))""", re.DOTALL)
_ESCAPED = re.compile(r"""\\([\\"'])""")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


class Spec:
    """A part by name with its settings. Settings may be parts themselves: `balanced(batch-diffusion(omega=0.3))`.

    >>> spec = Spec.parse("margin(beta=0.6, sampling=random)")
    >>> spec.name, spec.settings
    ('margin', {'beta': 0.6, 'sampling': 'random'})
    >>> str(spec)
    'margin(beta=0.6, sampling=random)'
    """

    __slots__ = ("name", "positional", "settings")

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None, positional: tuple[Any, ...] = ()) -> None:
        self.name, self.settings, self.positional = name, dict(settings or {}), positional

    @classmethod
    def parse(cls, text: Any) -> Spec:
        """The part that a text names; None is the part `none`, as YAML may write it."""
        if isinstance(text, Spec):
            return text
        parser = _Parser("none" if text is None else str(text))
        value = parser.whole()
        if value is None or isinstance(value, str):
            value = Spec("none" if value is None else value)
        if not isinstance(value, Spec):
            parser.fail("must begin with a name")
        return value

    def with_setting(self, name: str, value: Any) -> Spec:
        """A copy with one setting more, or another value of it."""
        return Spec(self.name, {**self.settings, name: value}, self.positional)

    def __str__(self) -> str:
        inside = [*map(written, self.positional), *(f"{name}={written(value)}" for name, value in self.settings.items())]
        return f"{self.name}({', '.join(inside)})" if inside else self.name

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def written(value: Any) -> str:
    """A setting's value as `Spec.parse` reads it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, str):
        token = _TOKEN.fullmatch(value)
        if token and token["word"] == value == _literal(value):
            return value
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _literal(word: str) -> Any:
    """A number, true, false or none as such; any other word is a text."""
    if _WHOLE.fullmatch(word) and len(word) < 100:
        return int(word)
    return float(word) if _NUMBER.fullmatch(word) else _WORDS.get(word, word)


class _Parser:
    """Reads `name(value, setting=value)`, where a value is a number, a text, true, false, none, a list, or a part."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, 0, 0
        if len(text) > LONGEST:
            self.fail(f"is longer than {LONGEST} characters")

    def whole(self) -> Any:
        value = self.value()
        if rest := self.text[self.place :].strip():
            self.fail(f"has {rest!r} after its end")
        return value

    def value(self) -> Any:
        kind, token = self._next()
        if kind == "text":
            return _ESCAPED.sub(r"\1", token[1:-1])
        if token == "[":
            return [value for _, value in self._items("]", named=False)]
        if kind != "word":
            self.fail(f"has {token!r} where a name or a value should stand" if token else "ends too early")
        if not self._accept("("):
            return _literal(token)
        items = self._items(")", named=True)
        names = [name for name, _ in items if name]
        if len(set(names)) < len(names):
            self.fail("has a setting twice")
        return Spec(token, {name: value for name, value in items if name}, tuple(value for name, value in items if not name))

    def _items(self, close: str, named: bool) -> list[tuple[str, Any]]:
        """What stands between brackets, each with its name if it has one."""
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"has more than {DEEPEST} brackets inside each other")
        items: list[tuple[str, Any]] = []
        more = not self._accept(close)
        while more:
            value, name = self.value(), ""
            if named and self._accept("="):
                if not isinstance(value, str) or not value.isidentifier():
                    self.fail(f"has {value!r} before '=', which must be the name of a setting")
                value, name = self.value(), value
            items.append((name, value))
            comma, more = self._accept(","), not self._accept(close)
            if more and not comma:
                self.fail(f"has no {close!r} or ',' after {value!r}")
        self.depth -= 1
        return items

    def _accept(self, mark: str) -> bool:
        """Whether this mark comes next, which is then read."""
        before = self.place
        if self._next()[1] != mark:
            self.place = before
        return self.place > before

    def _next(self) -> tuple[str, str]:
        """The next token with its kind; two empty texts at the end."""
        token = _TOKEN.match(self.text, self.place)
        if token is None:
            if rest := self.text[self.place :].strip():
                self.fail(f"cannot be read from {rest!r} on")
            return "", ""
        self.place = token.end()
        return str(token.lastgroup), str(token[str(token.lastgroup)])

    def fail(self, what: str) -> NoReturn:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:100]}…"
        raise InputError(f"{shown!r} {what[:200]}; write it as margin(beta=0.6, sampling=random)")
