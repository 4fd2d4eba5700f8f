"""What a client asks, by a form or by JSON."""

from __future__ import annotations

import reprlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any, NamedTuple

from fastapi import HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from obdsd.serve.limits import MOST_FOUND

NAME = 200  # letters of a file's name that are kept


class Asked(BaseModel):
    """A search."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    item: str | None = Field(None, description="An item of the index by its name; it does not find itself.")
    k: int = Field(5, ge=1, le=MOST_FOUND, description="How many to find.")
    rerank: bool = Field(False, description="Whether the re-ranker of the server orders what is found.")
    threshold: float | None = Field(
        None, ge=-1, le=1, description="Find nothing less similar than this, a cosine; default what the index keeps, -1 finds all."
    )
    within: str | None = Field(None, description="Only items with this label.")


class Upload(NamedTuple):
    """The file that a client sends, and what it calls it."""

    name: str
    file: IO[bytes]


_JSON = Asked.model_json_schema()
_IMAGE = {"type": "string", "format": "binary", "description": "The image to search for, in place of an item."}
BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": {**_JSON, "properties": {"image": _IMAGE, **_JSON["properties"]}}},
        "application/json": {"schema": _JSON},
    },
}


@asynccontextmanager
async def asked_of(request: Request) -> AsyncIterator[tuple[Asked, Upload | None]]:
    """What a request asks, and the image that comes with it, if one does; the file is gone at the end."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        yield _one(await request.body(), None), None
    elif kind == "multipart/form-data":
        async with request.form(max_files=1, max_fields=len(Asked.model_fields)) as form:
            image = form.get("image")
            if isinstance(image, str):
                raise HTTPException(422, "image is a text, not a file; send the file itself, such as by curl -F image=@photo.jpg")
            upload = None if image is None else Upload((image.filename or "image")[:NAME], image.file)
            fields = {name: value for name, value in form.items() if name != "image" and value}  # a page sends empty fields, too
            yield _one(fields, upload), upload
    else:
        raise HTTPException(415, f"content-type={kind[:100]!r} is not known; send multipart/form-data or application/json")


def _one(given: bytes | dict[str, Any], upload: Upload | None) -> Asked:
    """The search in a body of JSON or in the fields of a form, of which something must be searched for."""
    try:
        asked = Asked.model_validate_json(given) if isinstance(given, bytes) else Asked.model_validate(given)
    except ValidationError as mistake:
        raise HTTPException(422, _line(mistake)) from mistake
    if (asked.item is None) == (upload is None):
        raise HTTPException(422, "an image or an item must be given, and not both; send one of them")
    return asked


def _line(mistake: ValidationError) -> str:
    first = mistake.errors()[0]
    field = ".".join(map(str, first["loc"])) or "body"
    if first["type"] == "extra_forbidden":
        return f"{field[:100]}: there is no such field; there are image, {', '.join(Asked.model_fields)}"
    return f"{field}={reprlib.repr(first['input'])}: {first['msg'][0].lower()}{first['msg'][1:]}"
