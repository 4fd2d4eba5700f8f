"""The HTTP interface as a page, out of its OpenAPI description. It opens offline: the usual ones load their scripts from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
<title>{title}: HTTP interface</title>
</head>
<body>
<main class="reference">
<section id="result"><h1>HTTP interface</h1><p>{about}</p>
<p><a href="/">The page</a> · <a href="/openapi.json">openapi.json</a>, for tools that make clients of it</p>
<h2>For example</h2><pre>{examples}</pre></section>
{parts}
</main>
</body>
</html>
"""
EXAMPLES = """curl -F image=@photo.jpg -F k=3 http://127.0.0.1:8000/api/search
curl -F image=@photo.jpg -F rerank=true -F threshold=-1 http://127.0.0.1:8000/api/search
curl -H 'content-type: application/json' -d '{"item": "F/3.png", "k": 3}' http://127.0.0.1:8000/api/search"""


def reference_page(openapi: Mapping[str, Any]) -> str:
    known = openapi.get("components", {}).get("schemas", {})
    parts = [_operation(path, method, about, known) for path, methods in openapi["paths"].items() for method, about in methods.items()]
    info = openapi["info"]
    return PAGE.format(title=escape(info["title"]), about=_words(info["description"]), examples=escape(EXAMPLES), parts="\n".join(parts))


def _operation(path: str, method: str, about: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    lines = [f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about['summary'])}.</p>"]
    if "description" in about:
        lines.append(f"<p>{_words(about['description'])}</p>")
    if "parameters" in about:
        lines.append(_table("Given", _fields({each["name"]: {**each, **each["schema"]} for each in about["parameters"]}, known)))
    for kind, body in about.get("requestBody", {}).get("content", {}).items():
        lines.append(_table(f"Sent as {kind}", _fields(body["schema"]["properties"], known)))
    for kind, answer in about["responses"]["200"]["content"].items():
        fields = _resolved(answer.get("schema", {}), known).get("properties")
        lines.append(_table(f"Answered as {kind}", _fields(fields, known)) if fields else f"<p>Answered as {escape(kind)}.</p>")
    refusals = [(code, answer["description"]) for code, answer in sorted(about["responses"].items()) if code != "200"]
    return "\n".join([*lines, _table("Refused", refusals) if refusals else "", "</section>"])


def _words(text: str) -> str:
    """Escaped, and what stands in backticks as code."""
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(text))


def _table(title: str, rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join([f"<th><code>{escape(name)}</code></th>", *(f"<td>{_words(cell)}</td>" for cell in more)]) for name, *more in rows)
    return f'<h3>{escape(title)}</h3><div class="scroll"><table><tbody><tr>{"</tr><tr>".join(cells)}</tr></tbody></table></div>'


def _fields(fields: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str, str]]:
    """The name of each field, its kind, and what is said of it; the fields of a list's entries follow it."""
    for name, schema in fields.items():
        default = f"Default {json.dumps(schema['default'])}." if schema.get("default") is not None else ""
        yield before + name, _kind(schema), " ".join(filter(None, [schema.get("description", ""), default]))
        entries = _resolved(schema.get("items", {}), known)
        yield from _fields(entries.get("properties", {}), known, f"{before}{name}[].")


def _kind(schema: Mapping[str, Any]) -> str:
    """Such as integer from 1 to 100, or text or null."""
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if schema.get("format") == "binary":
        return "file"
    bounds = [f"{word} {schema[key]:g}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in schema]
    kind = {"string": "text", "array": "list"}.get(schema.get("type", ""), schema.get("type", ""))
    return " ".join([kind, *bounds])


def _resolved(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema refers to."""
    return known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
