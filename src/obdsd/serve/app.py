"""The page and the HTTP interface."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response

from obdsd import __version__
from obdsd.errors import InputError
from obdsd.search import Query
from obdsd.serve.asked import BODY, Asked, asked_of
from obdsd.serve.engine import Engine
from obdsd.serve.guard import Guard
from obdsd.serve.limits import Limits
from obdsd.serve.opened import Opened
from obdsd.serve.pictures import picture_of
from obdsd.serve.reference import reference_page
from obdsd.serve.told import Answered, Facts, Health, Refusal, answered, facts_of
from obdsd.serve.uploads import read_upload

PICTURES_SECONDS = 3600  # that a browser may keep one
ABOUT = "What is near to an image in an index of obdsd. Whatever is refused is told in one line, `detail`."
BUSY = {408: "The body did not arrive in time.", 413: "More bytes or pixels than are taken.", 503: "Too many searches; see `Retry-After`."}
REFUSED = {400: "Not what its content type says.", 404: "No such item.", 415: "Neither JSON nor a form.", 422: "See `detail`.", **BUSY}


def make_app(engine: Engine, limits: Limits, host: str = "127.0.0.1") -> FastAPI:
    """The app for an ASGI server that listens at `host`; it starts and ends the engine."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with engine:
            yield

    app = FastAPI(title="obdsd serve", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, limits=limits, host=host)
    _add_pages(app)
    _add_interface(app, engine, limits)
    _add_refusals(app)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(_file("serve/page/page.html"))

    @app.get("/page.css", include_in_schema=False)
    async def style() -> Response:
        return Response(_file("report/templates/style.css") + _file("serve/page/page.css"), media_type="text/css")

    @app.get("/page.js", include_in_schema=False)
    async def script() -> Response:
        return Response(_file("serve/page/page.js"), media_type="text/javascript")

    @app.get("/docs", include_in_schema=False)
    async def reference() -> Response:
        return HTMLResponse(reference_page(app.openapi()))


@cache
def _file(path: str) -> str:
    """A file of the package. (The style is that of all our pages.)"""
    return resources.files("obdsd").joinpath(path).read_text(encoding="utf-8")


def _add_interface(app: FastAPI, engine: Engine, limits: Limits) -> None:
    @app.get("/healthz", summary="Whether the server answers")
    async def health() -> Health:
        return Health(status="ok", items=len(engine.now.index.items))

    @app.get("/api/index", summary="What is served, and what may be asked")
    async def about() -> Facts:
        return facts_of(engine.now, limits)

    @app.post(
        "/api/search",
        summary="What is near to an image, or to an item of the index",
        responses={code: {"model": Refusal, "description": why} for code, why in REFUSED.items()},
        openapi_extra={"requestBody": BODY},
    )
    async def search(request: Request) -> Answered:
        start = time.perf_counter()
        async with asked_of(request) as (asked, upload):
            opened = engine.now
            if upload is None:
                query = _item(opened, asked)
            elif opened.transform is None:
                raise HTTPException(422, "the index holds rows, and its model knows no images; search by the name of an item")
            else:
                pixels = await engine.read(lambda: opened.pixels(read_upload(*upload, limits.max_pixels)))
                query = Query(upload.name, row=await engine.row(opened, pixels))
        if asked.rerank and opened.rerank is None:
            raise HTTPException(422, "rerank=true, but this server offers no re-ranker; leave it out, or start it with --rerank diffusion")
        answer = await engine.think(opened.search, query, asked.k, asked.rerank, asked.threshold, asked.within)
        return answered(opened, asked, answer, time.perf_counter() - start)

    @app.get(
        "/api/items/{place}/image",
        summary="A small picture of an item, as WebP",
        response_class=Response,
        responses={200: {"content": {"image/webp": {}}}, 404: {"model": Refusal, "description": "No such item, or no picture of it."}},
    )
    async def picture(place: int, of: str | None = None) -> Response:
        """The place is that of the item in the index. `of`, which the links of an answer have, tells whether it is still the same item."""
        index = engine.now.index
        if not 0 <= place < len(index.items):
            raise HTTPException(404, f"place={place} is none of the {len(index.items):,} items; see what a search answers")
        if of is not None and not index.items[place].digest.startswith(of):
            raise HTTPException(404, f"place={place} is another item now, as the index changed; search again")
        content = await engine.read(picture_of, index, place)
        return Response(content, media_type="image/webp", headers={"cache-control": f"private, max-age={PICTURES_SECONDS}"})


def _item(opened: Opened, asked: Asked) -> Query:
    """An item by its name. No name is ever taken for a path."""
    assert asked.item is not None
    place = opened.index.places.get(asked.item)
    if place is None:
        raise HTTPException(404, f"item={asked.item[:200]!r} is no item of the index; names are such as {opened.index.items[0].name!r}")
    return Query(asked.item, position=place)


def _add_refusals(app: FastAPI) -> None:
    """Every refusal is one line."""

    @app.exception_handler(InputError)
    async def mistake(request: Request, fault: InputError) -> Response:
        return JSONResponse({"detail": str(fault)}, 422)

    @app.exception_handler(RequestValidationError)
    async def misfit(request: Request, fault: RequestValidationError) -> Response:
        first: dict[str, Any] = fault.errors()[0]
        return JSONResponse({"detail": f"{first['loc'][-1]}={first['input']!r}: {first['msg']}"}, 422)

    @app.exception_handler(Exception)
    async def defect(request: Request, fault: Exception) -> Response:
        return JSONResponse({"detail": "a defect of obdsd, whose traceback the server has printed; please report it"}, 500)
