"""All parts of the package: each can be found, says what it is and what every setting of it does, and the page of the docs agrees."""

import re
from pathlib import Path

import pytest

import obdsd
from obdsd import InputError
from obdsd.catalogue import DATA, OUTSIDE, TABLES, register
from obdsd.cli import main
from obdsd.convert import convert
from obdsd.parts import MISSING
from obdsd.spec import Spec

PARTS = [(kind, name) for kind, table in TABLES.items() for name in table.names]
each = pytest.mark.parametrize(("kind", "name"), PARTS)
PAGE = Path(__file__).parents[1] / "docs" / "parts.md"
SENTENCE = re.compile(r"\S.*[.…]")


@each
def test_a_part_says_what_it_is_and_what_every_setting_does(kind, name):
    table = TABLES[kind]
    assert SENTENCE.fullmatch(table.summary(name)), "begin its docstring with a sentence on one line"
    for setting in table.settings(name).values():
        assert SENTENCE.fullmatch(setting.sentence), f"add {setting.name}: … to the docstring's Args"
        if setting.default is not MISSING and setting.default is not None:
            made = convert(setting.name, setting.type, setting.default)
            assert (made, type(made)) == (setting.default, type(setting.default))


NEEDED = {"omega": 0.3, "loss": "proxy-anchor", "source": "a/run", "file": "a.npz", "targets": "pairwise", "name": "TripletMarginLoss"}


@each
def test_defaults_written_out_are_the_part_itself(kind, name):
    table, defaults = TABLES[kind], {setting.name: setting.default for setting in TABLES[kind].settings(name).values()}
    needed = {setting: NEEDED[setting] for setting, default in defaults.items() if default is MISSING}
    canonical = table.checked(Spec(name, needed))
    assert table.checked(Spec(name, {**defaults, **needed})) == canonical
    assert table.checked(str(canonical)) == canonical


def test_data_sets_have_no_settings():
    assert all(DATA.settings(name) == {} for name in DATA.names)


def test_register_by_kind():
    with pytest.raises(InputError, match=r"^kind=target is not known; did you mean targets\?$"):
        register("target", "made-up", int)
    assert __name__ not in OUTSIDE
    try:
        obdsd.register("targets", "made-up-here", int)
        assert __name__ in OUTSIDE  # so that other processes import it too
    finally:
        TABLES["targets"]._homes.pop("made-up-here", None)
        OUTSIDE.discard(__name__)


def test_the_page_of_all_parts_is_what_the_tables_give(capsys):
    assert main(["parts", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(), "rewrite it: obdsd parts --format markdown > docs/parts.md"


def test_the_list_has_every_part_and_every_setting(capsys):
    assert main(["parts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for kind, name in PARTS:
        assert any(line.startswith(f"  {name}: ") for line in lines)
        for setting in TABLES[kind].settings(name):
            assert any(line.startswith(f"      {setting}: ") for line in lines)
    assert "      omega: Probability of continuing the walk. [must be given]" in lines
    assert "  recall@1: Share of queries whose nearest other item has the same class. Higher is better." in lines
    assert main(["parts", "system"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "system:"
    assert main(["parts", "los"]) == 2
    assert capsys.readouterr().err == "obdsd: KIND los is not known; did you mean loss?\n"
