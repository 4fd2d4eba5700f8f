"""Tables of parts: what there is of each kind by name, which settings each has, and how it is built. Imports no torch.

A part is a plain function or class. What the system knows (the model, the number of classes, …) is passed to the arguments of
these names; all its other arguments are the part's own settings: default and type from the signature, a sentence from the docstring.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from obdsd.convert import convert
from obdsd.errors import InputError, explain_missing
from obdsd.spec import Spec

MISSING: Any = inspect.Parameter.empty
"""Stands for a default that is not there."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of a part; `default` is MISSING if it must be given."""

    name: str
    type: Any
    default: Any
    sentence: str


class PartError(InputError):
    """A part that cannot be built; the message begins with its name."""


class Table:
    """The parts of one kind.

    Args:
        kind: What they are called in options and messages: `loss`, `teacher`, …
        homes: Name → `module:attribute`, imported on first use.
        context: Arguments that the system fills in, by name.
    """

    def __init__(self, kind: str, homes: Mapping[str, str], context: Collection[str] = ()) -> None:
        self.kind, self.context = kind, tuple(context)
        self._homes: dict[str, str | Callable[..., Any]] = dict(homes)
        self._outside: set[str] = set()  # names of parts that were registered
        self._settings: dict[str, dict[str, Setting]] = {}  # of the parts that were looked at

    @property
    def names(self) -> list[str]:
        return list(self._homes)

    def register(self, name: str, build: Callable[..., Any]) -> None:
        """Add a part from outside the package."""
        if name in self._homes:
            raise InputError(f"{self.kind}={name} is taken; register it by another name")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
            raise InputError(f"{self.kind}={name!r} must be letters, digits and dashes; rename it")
        self._homes[name] = build
        self._outside.add(name)

    def check_known(self, name: str) -> None:
        """Refuse a name that there is not; nothing is imported for it."""
        if name not in self._homes:
            raise InputError(f"{self.kind}={name} is not known; {suggestion(name, self._homes)}")

    def find(self, name: str) -> Callable[..., Any]:
        """What builds the part of this name."""
        self.check_known(name)
        home = self._homes[name]
        if isinstance(home, str):
            module, _, attribute = home.partition(":")
            with explain_missing():
                home = getattr(importlib.import_module(module), attribute)
            self._homes[name] = home
        assert callable(home)
        return home

    def settings(self, name: str) -> dict[str, Setting]:
        """The part's own settings, in the order of its signature."""
        if name not in self._settings:
            self._settings[name] = _settings_of(self.find(name), self.context)
        return self._settings[name]

    def summary(self, name: str) -> str:
        """The first sentence of the part's docstring."""
        return (inspect.getdoc(self.find(name)) or "").partition("\n")[0]

    def checked(self, text: Any) -> Spec:
        """The canonical form: every setting known, named and of its type; those at their default left out."""
        spec = Spec.parse(text)
        settings = self._given(spec)
        inner = [name for name in list(self.settings(spec.name))[:1] if isinstance(settings.get(name), Spec)]  # balanced(pairwise)
        return Spec(spec.name, settings, tuple(settings.pop(name) for name in inner))

    def named(self, spec: Spec) -> dict[str, Any]:
        """The values as they were given, all by the names of their settings."""
        known = self.settings(spec.name)
        if len(spec.positional) > len(known):
            there = ", ".join(known) or "none"
            raise InputError(f"{self.kind}={spec} has more values than {spec.name} has settings ({there}); leave some out")
        given = {**dict(zip(known, spec.positional, strict=False)), **spec.settings}
        if len(given) < len(spec.positional) + len(spec.settings):
            raise InputError(f"{self.kind}={spec} gives a setting twice; give it once")
        return given

    def _given(self, spec: Spec) -> dict[str, Any]:
        """The settings that differ from their defaults, in the order of the signature."""
        known, given = self.settings(spec.name), self.named(spec)
        for name in given:
            if name not in known:
                remedy = suggestion(name, known) if known else "leave it out"
                raise InputError(f"{self.kind}={spec}: {spec.name} has no setting {name!r}; {remedy}")
        missing = [name for name, setting in known.items() if setting.default is MISSING and name not in given]
        if missing:
            raise InputError(f"{self.kind}={spec} needs {' and '.join(missing)}; write {spec.name}({missing[0]}=…)")
        made = {name: self._converted(f"{self.kind}={spec}: {name}", known[name], given[name]) for name in known if name in given}
        return {name: value for name, value in made.items() if value != known[name].default}

    def _converted(self, where: str, setting: Setting, value: Any) -> Any:
        if Spec in (setting.type, *typing.get_args(setting.type)):  # the part reads it itself
            return None if value is None else Spec.parse(value)
        if setting.name == self.kind:  # a part around a part
            return None if value is None else self.checked(value)
        return convert(where, setting.type, value)

    def build(self, text: Any, **context: Any) -> Any:
        """The part, made with its settings and with what it asks for of the context."""
        spec = Spec.parse(text)
        settings, build = self._given(spec), self.find(spec.name)
        wanted = inspect.signature(build).parameters
        if self.kind in settings:  # a part around a part
            settings[self.kind] = self.build(settings[self.kind], **context)
        try:
            return build(**{name: value for name, value in context.items() if name in wanted}, **settings)
        except PartError:  # of a part inside this one: it is named already
            raise
        except InputError as fault:
            raise PartError(f"{self.kind}={spec}: {fault}") from fault
        except Exception as fault:
            if spec.name not in self._outside:  # ours: a defect
                raise
            raise PartError(f"{self.kind}={spec}: its builder failed ({type(fault).__name__}: {fault}); mend it") from fault


def suggestion(name: object, known: Collection[str], otherwise: str = "") -> str:
    """What a mistyped name was meant to be; if it is like none, what there is."""
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else otherwise or f"there are {', '.join(known)}"


def _settings_of(build: Callable[..., Any], context: Collection[str]) -> dict[str, Setting]:
    sentences, parameters = _sentences(build), inspect.signature(build, eval_str=True).parameters
    return {
        name: Setting(name=name, type=_type_of(parameter), default=parameter.default, sentence=sentences.get(name, ""))
        for name, parameter in parameters.items()
        if name not in context and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _type_of(parameter: inspect.Parameter) -> Any:
    """The annotation. Without one, `noise=0.1` takes numbers and `flip=True` switches; a whole number may stand for any kind."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return type(parameter.default) if isinstance(parameter.default, (bool, float)) else Any


def _sentences(build: Callable[..., Any]) -> dict[str, str]:
    """The sentence of each argument, from the docstring's `Args:`."""
    _, _, arguments = (inspect.getdoc(build) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", arguments.partition("\n\n")[0], flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
