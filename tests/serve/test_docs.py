"""docs/serve.md says what the command and the server do."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

from obdsd.cli.serve import Options
from obdsd.serve.reference import EXAMPLES
from tests.serve.asking import Client

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text()


def test_its_options_are_those_of_the_command():
    rows = re.findall(r"^\| `--([\w-]+)` \| (\S+) \|", PAGE, flags=re.MULTILINE)
    assert rows == [(each.name.replace("_", "-"), str(each.default)) for each in fields(Options) if each.name != "index"]


def test_its_answer_has_the_fields_of_an_answer_and_its_statuses_are_the_documented_ones(server: Client):
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    answer = server.search_json(item="ant/0.png", k=1).body
    assert {**json.loads(shown), "found": [*json.loads(shown)["found"][0]]}.keys() == answer.keys()
    assert [*json.loads(shown)["found"][0]] == [*answer["found"][0]]
    statuses = set(re.findall(r"^\| (\d{3}) \|", PAGE, flags=re.MULTILINE))
    assert statuses == {*server.ask("/openapi.json").body["paths"]["/api/search"]["post"]["responses"], "403"} - {"200"}


def test_its_commands_are_those_of_the_reference_and_its_app_answers(collection, tmp_path, monkeypatch):
    for line in re.findall(r"^curl .*", PAGE, flags=re.MULTILINE):
        path, content = re.search(r"127\.0\.0\.1:8000(/\S+)", line)[1], re.search(r"-d '(.*)'", line)
        assert f"127.0.0.1:8000{path}" in EXAMPLES
        assert content is None or json.loads(content[1])["k"] == 1
    shutil.copytree(collection / "photos.index", tmp_path / "photos.index")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    exec(compile(block, "docs/serve.md", "exec"), names)
    assert [*names["app"].openapi()["paths"]] == ["/healthz", "/api/index", "/api/search", "/api/items/{place}/image"]
