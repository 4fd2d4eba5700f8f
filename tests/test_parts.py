"""Tables of parts, on a made-up kind of part: settings come from the signature, sentences from the docstring."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from obdsd import InputError
from obdsd.parts import MISSING, Setting, Table, suggestion
from obdsd.spec import Spec


def pan(metal: Literal["iron", "steel"] = "iron", width: int = 24, *, stove: str, lid: bool = False) -> dict[str, Any]:
    """A pan to fry in.

    It has a handle.

    Args:
        metal: What it is made of.
        width: How wide it is,
            in centimetres.
        stove: Where it stands.

    >>> 1 + 1
    2
    """
    return {"metal": metal, "width": width, "stove": stove, "lid": lid}


@dataclass(frozen=True)
class Kettle:
    """Boils water.

    Args:
        litres: How much it holds.
    """

    litres: float

    def __post_init__(self) -> None:
        if self.litres <= 0:
            raise InputError(f"litres={self.litres} must be above 0")


def spoon() -> str:
    return "spoon"


def nested(tool: Any, times: int = 2) -> list[Any]:
    return [tool] * times


def second(times: int = 2, tool: Any = "pan") -> list[Any]:
    return [tool] * times


def reads_itself(name: Spec, other: Spec | None = None) -> tuple[Spec, Spec | None]:
    return name, other


def open_ended(stove: str, *things: Any, plain=3, heat=0.5, **more: Any) -> dict[str, Any]:
    return {"stove": stove, "plain": plain, "heat": heat, "things": things, "more": more}


@pytest.fixture
def tools():
    table = Table("tool", {"pan": f"{__name__}:pan"}, context=("stove", "cook"))
    table._homes["pan"] = pan
    others = {"kettle": Kettle, "two": nested, "second": second, "raw": reads_itself, "open": open_ended, "spoon": spoon}
    for name, build in others.items():
        table.register(name, build)
    return table


def test_settings_come_from_the_signature_and_sentences_from_the_docstring(tools):
    assert tools.settings("pan") == {
        "metal": Setting(name="metal", type=Literal["iron", "steel"], default="iron", sentence="What it is made of."),
        "width": Setting(name="width", type=int, default=24, sentence="How wide it is, in centimetres."),
        "lid": Setting(name="lid", type=bool, default=False, sentence=""),
    }
    assert tools.settings("kettle")["litres"].default is MISSING
    assert tools.settings("kettle")["litres"].type is float
    assert [*tools.settings("open")] == ["plain", "heat"]
    assert (tools.settings("open")["plain"].type, tools.settings("open")["heat"].type) == (Any, float)
    assert (tools.summary("pan"), tools.summary("kettle"), tools.summary("two")) == ("A pan to fry in.", "Boils water.", "")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("pan", "pan"),
        ("pan(iron, 24)", "pan"),
        ("pan(width='30', metal=iron)", "pan(width=30)"),
        ("pan(lid=yes, width=24.0, metal=steel)", "pan(metal=steel, lid=true)"),
        ("kettle(2)", "kettle(litres=2.0)"),
        ("two(two(pan(width=24), times=2), 3)", "two(two(pan), times=3)"),
        ("two(tool=kettle(1))", "two(kettle(litres=1.0))"),
        ("second(tool=two(pan))", "second(tool=two(pan))"),
        ("raw(Some(a=1, b=[2]), other=Thing)", "raw(Some(a=1, b=[2]), other=Thing)"),
        ("raw(Some, other=none)", "raw(Some)"),
        (Spec("pan", {"width": 5}), "pan(width=5)"),
    ],
)
def test_the_canonical_form_names_what_differs_from_the_defaults(tools, written, canonical):
    assert str(tools.checked(written)) == canonical
    assert str(tools.checked(canonical)) == canonical


def test_parts_are_built_with_their_settings_and_what_they_ask_for_of_the_context(tools):
    assert tools.build("pan(steel, lid=true)", stove="gas", cook="me") == {"metal": "steel", "width": 24, "stove": "gas", "lid": True}
    assert tools.build("kettle(1.5)", stove="gas") == Kettle(1.5)
    assert tools.build("two(two(kettle(1)), times=1)", stove="gas") == [[Kettle(1.0)] * 2]
    assert tools.build("raw(Some(a=1))") == (Spec("Some", {"a": 1}), None)
    assert tools.build("open(plain=4)", stove="gas") == {"stove": "gas", "plain": 4, "heat": 0.5, "things": (), "more": {}}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("pam", r"^tool=pam is not known; did you mean pan\?$"),
        ("zzz", r"^tool=zzz is not known; there are pan, kettle, two, second, raw, open, spoon$"),
        ("two(pam)", r"tool=pam is not known; did you mean pan\?"),
        ("pan(widht=3)", r"^tool=pan\(widht=3\): pan has no setting 'widht'; did you mean width\?$"),
        ("pan(stove=gas)", r"pan has no setting 'stove'; there are metal, width, lid$"),
        ("kettle", r"^tool=kettle needs litres; write kettle\(litres=…\)$"),
        ("pan(1, 2, 3, 4)", r"^tool=pan\(1, 2, 3, 4\) has more values than pan has settings \(metal, width, lid\); leave some out$"),
        ("pan(iron, metal=steel)", r"^tool=pan\(iron, metal=steel\) gives a setting twice; give it once$"),
        ("pan(brass)", r"^tool=pan\(brass\): metal=brass must be one of iron, steel"),
        ("open(heat=much)", r"^tool=open\(heat=much\): heat=much must be a number$"),
        ("spoon(long=true)", r"^tool=spoon\(long=true\): spoon has no setting 'long'; leave it out$"),
        ("spoon(1)", r"^tool=spoon\(1\) has more values than spoon has settings \(none\); leave some out$"),
        ("two(5)", r"'5' must begin with a name"),
        ("pan(", r"^'pan\(' ends too early"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(tools, written, message):
    for use in (tools.checked, tools.build):
        with pytest.raises(InputError, match=message):
            use(written)


def test_what_a_part_refuses_names_the_part(tools):
    with pytest.raises(InputError, match=r"^tool=kettle\(litres=-1\): litres=-1.0 must be above 0$"):
        tools.build("kettle(litres=-1)")


def test_register_refuses_what_is_taken_and_what_cannot_be_written(tools):
    with pytest.raises(InputError, match=r"^tool=pan is taken; register it by another name$"):
        tools.register("pan", pan)
    for name in ("", "two words", "pan(2)", "1st", "a=b", "ä", "a.b"):
        with pytest.raises(InputError, match=re.escape(f"tool={name!r} must be letters, digits and dashes; rename it")):
            tools.register(name, pan)
    assert tools.names == ["pan", "kettle", "two", "second", "raw", "open", "spoon"]


def test_any_callable_can_be_registered(tools):
    tools.register("wide-pan", functools.partial(pan, width=40))
    assert tools.build("wide-pan(metal=steel)", stove="gas")["width"] == 40
    assert str(tools.checked("wide-pan(width=40)")) == "wide-pan"


def test_homes_are_imported_on_first_use_and_a_missing_extra_is_explained(monkeypatch):
    table = Table("tool", {"path": "pathlib:PurePath", "missing": "obdsd_there_is_none:x", "drawing": "plotly_home:draw"})
    assert table.names == ["path", "missing", "drawing"]
    assert table.find("path").__name__ == "PurePath"
    with pytest.raises(ModuleNotFoundError, match="obdsd_there_is_none"):
        table.find("missing")

    def no_plotly(name):
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")

    monkeypatch.setattr("importlib.import_module", no_plotly)
    with pytest.raises(ImportError, match=r'plotly is not installed; pip install "obdsd\[report\]" installs it'):
        table.find("drawing")


def test_suggestions():
    assert suggestion("Margin", ["margin", "pml"]) == "did you mean margin?"
    assert suggestion("x", ["margin", "pml"]) == "there are margin, pml"
    assert suggestion(5, ["margin", "pml"], "see the list") == "see the list"
