"""The OpenAPI document: schemas of the hot route, examples, and the problems that each route answers."""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from app import errors_page
from app.examples import EXAMPLES, PROBLEMS
from app.wire import ResultIn, ResultOut

JSON = "application/json"
_REF = "#/components/schemas/{name}"
_STRUCTS = (ResultIn, ResultOut)
_SHAPES: dict[str, Mapping[str, Any]] = {}

DESCRIPTION = """Governs what AI agents' tools return. POST a raw result to `/results`: what fits passes, what
does not is stored whole and replaced by a short text that tells the model how to get at it."""

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "Says what to do."},
        "instance": {"type": "string"},
        "code": {"type": "string", "description": "For programs; never changes."},
        "retryable": {"type": "boolean"},
        "stored": {
            "type": "boolean",
            "description": "false: the caller still holds the only copy.",
        },
    },
}


def schema_of(struct: type[msgspec.Struct], description: str, example: str) -> dict[str, Any]:
    """A response whose body is this struct."""
    schema = {"$ref": _REF.format(name=struct.__name__)}
    return {
        "description": description,
        "content": {JSON: {"schema": schema, "example": EXAMPLES[example]}},
    }


def body_of(struct: type[msgspec.Struct], shape: Mapping[str, Any], example: str) -> dict[str, Any]:
    """A request body: this struct as JSON, or any text with the same fields in the query. `shape` replaces
    the properties that a struct cannot describe."""
    _SHAPES[struct.__name__] = shape
    schema = {"$ref": _REF.format(name=struct.__name__)}
    text = {"schema": {"type": "string"}, "example": EXAMPLES["text"]}
    content = {JSON: {"schema": schema, "example": EXAMPLES[example]}, "text/plain": text}
    names = [name for name in struct.__struct_fields__ if name != "content"]
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "string"},
            "description": "With a text body: as the JSON field of this name.",
        }
        for name in [*names, "used_tokens", "turn"]
    ]
    return {"requestBody": {"required": True, "content": content}, "parameters": parameters}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem+json answers of a route, each with an example."""
    return {
        status: {
            "description": PROBLEMS[status]["title"],
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": _REF.format(name="Problem")},
                    "example": PROBLEMS[status],
                }
            },
        }
        for status in statuses
    }


def example_of(name: str) -> dict[str, Any]:
    """A 200 answer's example, for `responses`."""
    return {"content": {JSON: {"example": EXAMPLES[name]}}}


def install(app: FastAPI) -> None:
    """The document under /openapi.json, and a page for people that loads nothing from elsewhere."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Spillgate",
            swagger_js_url="/swagger/swagger-ui-bundle.js",
            swagger_css_url="/swagger/swagger-ui.css",
            swagger_favicon_url="/swagger/favicon-32x32.png",
        )

    def errors() -> HTMLResponse:
        return HTMLResponse(errors_page.page())

    def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    app.add_api_route("/", root, include_in_schema=False)
    app.openapi = document  # type: ignore[method-assign]
    app.add_api_route("/docs/errors", errors, include_in_schema=False)
    app.add_api_route("/docs", docs, include_in_schema=False)
    app.mount("/swagger", StaticFiles(packages=[("fastapi_swagger", "resources")]))


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title="Spillgate", version=app.version, description=DESCRIPTION, routes=app.routes)
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    for name, shape in _SHAPES.items():
        components[name]["properties"].update(shape)
    schemas = document["components"]["schemas"]
    schemas |= components
    schemas["Problem"] = PROBLEM_SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "Only where API keys are set."}
    }
    document["security"] = [{"bearer": []}, {}]
    for path in document["paths"].values():
        for operation in path.values():
            _without_default_422(operation)
    return document


def _without_default_422(operation: dict[str, Any]) -> None:
    answer = operation["responses"].get("422")
    if answer and "HTTPValidationError" in str(answer):
        operation["responses"]["422"] = problems(422)[422]
