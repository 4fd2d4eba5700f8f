"""Examples in docstrings are shown as code. Read by mkdocstrings alone (mkdocs.yml)."""

import re

import griffe


class Doctests(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = re.sub(r"^>>> (?:.+\n?)+", fenced, obj.docstring.value, flags=re.MULTILINE)


def fenced(example):
    return f"```pycon\n{example[0].rstrip()}\n```\n"
