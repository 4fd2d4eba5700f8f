"""The written form of parts: what is written is read back, mistakes are one line, and nothing is ever evaluated."""

import contextlib
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.spec import DEEPEST, LONGEST, Spec, written
from tests.refusing import refused

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True).filter(lambda name: name.lower() not in ("true", "false", "none"))
SETTINGS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: name not in ("true", "false", "none"))
LITERALS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
VALUES = st.recursive(
    LITERALS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(Spec, NAMES, st.dictionaries(SETTINGS, inner, min_size=1, max_size=3), st.lists(inner, max_size=2).map(tuple))
    ),
    max_leaves=6,
)
SPECS = st.builds(Spec, NAMES, st.dictionaries(SETTINGS, VALUES, max_size=3), st.lists(VALUES, max_size=3).map(tuple))


def as_plain(value):
    """Nested lists and tuples in which 1, 1.0 and True differ."""
    if isinstance(value, Spec):
        return value.name, {name: as_plain(inner) for name, inner in value.settings.items()}, as_plain([*value.positional])
    return [as_plain(inner) for inner in value] if isinstance(value, list) else (type(value), value)


@given(SPECS)
def test_what_is_written_is_read_back(spec):
    if len(str(spec)) <= LONGEST:
        assert as_plain(Spec.parse(str(spec))) == as_plain(spec)
        assert Spec.parse(str(spec)) == spec
        assert hash(Spec.parse(str(spec))) == hash(spec)
    assert pickle.loads(pickle.dumps(spec)) == spec


WORDS = r"""1 -1 0.5 1e5 007 +4 true None none a=b p( ] , it's " '" \ C:\new a\' ä-ω"""


@pytest.mark.parametrize("text", ["", " ", "a b", "\n", *WORDS.split()])
def test_a_text_stays_that_text(text):
    assert Spec.parse(str(Spec("p", {"a": text}, (text, [text])))).settings == {"a": text}
    assert Spec.parse(str(Spec("p", {}, (text, [text])))).positional == (text, [text])


MARKS = st.text(alphabet="ab1.-+=,()[]\"' \\\n", max_size=30)


@given(st.text() | MARKS)
def test_any_text_is_a_part_or_one_clear_line(text):
    try:
        Spec.parse(text)
    except InputError as fault:
        assert str(fault).endswith("; write it as margin(beta=0.6, sampling=random)")  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "settings", "positional"),
    [
        ("p", {}, ()),
        ("p()", {}, ()),
        (" p ( a = 1 , ) ", {"a": 1}, ()),
        ("p(-1, 2.5, .5, 1e-3, +4, 007)", {}, (-1, 2.5, 0.5, 1e-3, 4, 7)),
        ("p(true, False, none)", {}, (True, False, None)),
        ("p(word, two-words, a.b, C:/x)", {}, ("word", "two-words", "a.b", "C:/x")),
        (r"""p("a b", 'it\'s', "C:\data", "\\")""", {}, ("a b", "it's", r"C:\data", "\\")),
        ("p([1, [x, 'y z']], w=[])", {"w": []}, ([1, ["x", "y z"]],)),
        ("p(a=q(b=1))", {"a": Spec("q", {"b": 1})}, ()),
    ],
)
def test_what_texts_mean(text, settings, positional):
    spec = Spec.parse(text)
    assert (spec.name, spec.settings, spec.positional) == ("p", settings, positional)


def test_names_alone():
    assert Spec.parse("none").name == Spec.parse("None").name == Spec.parse(None).name == "none"
    assert Spec.parse(Spec("a")) == Spec("a")
    assert str(Spec("margin", {"beta": 0.6}).with_setting("beta", 1.0)) == repr(Spec.parse("margin(beta=1.0)")) == "margin(beta=1.0)"
    assert written(("a b", None, True)) == "['a b', none, true]"
    assert Spec("a") != "a"


BAD = [
    ("", "'' ends too early;"),
    ("margin(beta=", "'margin(beta=' ends too early;"),
    ("margin(beta=1, beta=2)", "has a setting twice;"),
    ("margin(true=2)", "has True before '=', which must be the name of a setting;"),
    ("margin([1]=2)", "has [1] before '=', which must be the name of a setting;"),
    ("margin(beta==2)", "has '=' where a name or a value should stand;"),
    ("margin(,)", "has ',' where a name or a value should stand;"),
    ("margin(a b)", "has no ')' or ',' after 'a';"),
    ("margin([a=1])", "has no ']' or ',' after 'a';"),
    ("margin(1", "has no ')' or ',' after 1;"),
    ("margin)", "has ')' after its end;"),
    ("margin('a)", 'cannot be read from "\'a)" on;'),
    *((value, f"'{value}' must begin with a name;") for value in ("0.5", "[a]", "true", 5, True, [1])),  # as YAML may give it
]
REMEDY = " write it as margin(beta=0.6, sampling=random)"
test_a_mistake_is_one_line_that_names_it = refused([(text, message + REMEDY) for text, message in BAD], Spec.parse)


@pytest.mark.parametrize(
    "text",
    ['__import__("os").system("touch {path}")', "p(a=open('{path}', 'w'))", "p(1 + 1)", "p(lambda: 1)", "p(f'{{1/0}}')"],
)
def test_nothing_is_evaluated(text, tmp_path):
    path = tmp_path / "made"
    with contextlib.suppress(InputError):
        spec = Spec.parse(text.format(path=path))
        assert all(isinstance(value, (str, Spec)) for value in (*spec.positional, *spec.settings.values()))  # words, nothing computed
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p(" * (DEEPEST + 1), f"has more than {DEEPEST} brackets inside each other"),
        ("p([" + "[" * 1900 + "]" * 1900, f"has more than {DEEPEST} brackets inside each other"),
        ("a" * (LONGEST + 1), f"is longer than {LONGEST} characters"),
        (f"p({'9' * 3900}=1)", "before '=', which must be the name"),
        (f"p({'x ' * 1900})", "has no ')' or ',' after 'x'"),
    ],
    ids=["deep parts", "deep lists", "long name", "long number", "many words"],
)
def test_huge_and_deep_texts_end_in_one_short_line(text, message):
    with pytest.raises(InputError, match=re.escape(message)) as fault:
        Spec.parse(text)
    assert len(str(fault.value)) < 700


def test_as_deep_as_allowed_is_read():
    text = "p(" * DEEPEST + "1" + ")" * DEEPEST
    assert str(Spec.parse(text)) == text
    beside = f"p({', '.join(['[1]'] * 2 * DEEPEST)})"  # brackets that are closed do not count
    assert str(Spec.parse(beside)) == beside
