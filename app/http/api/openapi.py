"""The OpenAPI document: schemas of the hot route, examples, and the problems that each route answers."""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from app.answering.tool_definitions import TOOLS, ToolFormat, definitions, instructions
from app.http.api.answers import CONTENT, JSON, ResultOut, prefers
from app.http.api.problems import page, problem_of
from app.http.api.result_request import USAGE_SHAPE, ResultIn, UsageIn
from app.http.api.routing import Router, RouteTable, errors_of, traits_of
from app.http.api.schemas import NAMED, REF, in_query, named, parameters_of, settle
from domain.errors import RangeNotSatisfiable, SpillgateError, every_error
from domain.extraction import Mode

_STRUCTS = (ResultIn, ResultOut)
_SHAPES: dict[str, Mapping[str, Any]] = {"UsageIn": USAGE_SHAPE, "ResultOut": {"content": CONTENT}}
_DESCRIBED: dict[str, Mapping[str, str]] = {}
_FIELD = "/properties/"

_LINKS = """
<p>The dashboard: <a href="/ui">/ui</a>. The API for programs: <a href="/openapi.json">/openapi.json</a>.
Every error, and what to do: <a href="/docs/errors">/docs/errors</a>.</p>"""

DESCRIPTION = """Governs what AI agents' tools return. POST a raw result to `/results`: what fits passes, what
does not is stored whole and replaced by a short text that tells the model how to get at it."""

PROBLEM = "application/problem+json"
_PROBLEM = named(
    "Problem",
    {
        "type": "object",
        "required": ["type", "title", "status", "detail", "instance", "code", "retryable"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "Says what to do."},
            "instance": {
                "type": "string",
                "description": "The path's template, where it is known; else empty.",
            },
            "code": {
                "type": "string",
                "enum": sorted({kind.code for kind in every_error()}),
                "description": "For programs; never changes.",
            },
            "retryable": {"type": "boolean", "description": "true: the same request may work later."},
            "stored": {
                "type": "boolean",
                "description": "Of POST /results. false: the caller still holds the only copy.",
            },
            "errors": {
                "type": "array",
                "description": "Of invalid fields: each with the rule that it breaks.",
                "items": named(
                    "FieldError",
                    {
                        "type": "object",
                        "required": ["field", "rule"],
                        "properties": {"field": {"type": "string"}, "rule": {"type": "string"}},
                    },
                ),
            },
        },
    },
)
_PROBLEM_HEADERS = {
    401: ("WWW-Authenticate", "Bearer"),
    405: ("Allow", "The methods that this path takes."),
    416: ("Content-Range", "`bytes */SIZE`."),
    503: ("Retry-After", "Seconds."),
}


_KEYS = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, only where these are set. Where SPILLGATE_KEY_FOR_PAGES is set, /healthz "
        "and the pages /ui, /docs and /openapi.json need one too. /livez and /readyz need none.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "For /healthz and the pages alone, as a browser asks for it: any name, and the key "
        "as the password.",
    },
}


TEXT_ANSWER: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
"""The content of an answer to `Accept: text/plain`: just the text for the model."""


def json_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a request or of an answer: JSON of this schema."""
    return {JSON: {"schema": schema}}


def struct_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns a reference to the schema of a struct. The document holds the schema once."""
    return {"$ref": REF + kind.__name__}


def body_of(schema: Mapping[str, Any], description: str = "", *, required: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body itself."""
    described = {"description": description} if description else {}
    return {"requestBody": {"required": required, **described, "content": json_of(schema)}}


def result_body(
    struct: type[msgspec.Struct],
    shape: Mapping[str, Any],
    described: Mapping[str, str],
    headers: Mapping[str, str],
) -> dict[str, Any]:
    """The request body of a route: this struct as JSON, or any text with the same fields in the query.
    `shape` replaces the properties that a struct cannot describe. `described`: what the fields are, and those
    of the query; `headers`: what the headers do that the route reads."""
    _SHAPES[struct.__name__] = shape
    _DESCRIBED[struct.__name__] = described
    body = body_of(struct_of(struct))
    body["requestBody"]["content"]["text/plain"] = {"schema": {"type": "string"}}
    owners = {name: struct for name in struct.__struct_fields__ if name != "content"}
    owners |= dict.fromkeys(UsageIn.__struct_fields__, UsageIn)
    body["parameters"] = [
        {
            "name": name,
            "in": "query",
            "required": False,
            # Of the field, which `_document` replaces by its schema.
            "schema": {"$ref": f"{REF}{owner.__name__}{_FIELD}{name}"},
            "description": f"With a text body: {described[name]}",
        }
        for name, owner in owners.items()
    ]
    body["parameters"] += [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in headers.items()
    ]
    return body


def _problems_of(route: Route, shared: dict[str, Any]) -> dict[str, Any]:
    """The problems that a route answers, by status. Each is a reference into `shared`, which it fills."""
    answers: dict[str, Any] = {}
    for status, kinds in groupby(errors_of(route), key=lambda kind: kind.status):
        declared = list(kinds)
        name = ".".join(kind.code for kind in declared)
        shared[name] = _problem_answer(status, declared)
        answers[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return answers


def _problem_answer(status: int, kinds: list[type[SpillgateError]]) -> dict[str, Any]:
    examples = {kind.code: {"$ref": f"#/components/examples/{kind.code}"} for kind in kinds}
    content = {PROBLEM: {"schema": _PROBLEM, "examples": examples}}
    titles = dict.fromkeys(kind.title for kind in kinds)
    answer: dict[str, Any] = {"description": " · ".join(titles), "content": content}
    if status in _PROBLEM_HEADERS:
        name, text = _PROBLEM_HEADERS[status]
        answer["headers"] = {name: {"required": True, "description": text, "schema": {"type": "string"}}}
    return answer


def _problem_examples() -> dict[str, Any]:
    """An example for each error."""
    problems = {kind.code: problem_of(_made(kind)) for kind in every_error()}
    return {
        code: {"summary": problem.title, "value": msgspec.to_builtins(problem)}
        for code, problem in sorted(problems.items())
    }


def _made(kind: type[SpillgateError]) -> SpillgateError:
    return RangeNotSatisfiable("", 0) if issubclass(kind, RangeNotSatisfiable) else kind()


def _add_examples(paths: dict[str, Any], served: list[Route]) -> None:
    """The examples of routes and of `examples.json`, by operation: the JSON of its request and of each
    status."""
    examples = json.loads(files("app.http.api").joinpath("examples.json").read_text(encoding="utf-8"))
    every = [*TOOLS.values()]
    tools = {"tools": definitions(every, list(Mode), ToolFormat.OPENAI), "instructions": instructions(every)}
    examples["GET /tools"] = {"200": tools}
    for route in served:
        if (example := traits_of(route).example) is not None:
            examples |= {f"{method} {route.path_format}": {"200": example} for method in route.methods or ()}
    for name, by_place in examples.items():
        method, path = name.split()
        operation = paths[path][method.lower()]
        for part, example in by_place.items():
            target = operation["requestBody"] if part == "request" else operation["responses"][part]
            target["content"][JSON]["example"] = example
            if part == "request" and "text/plain" in target["content"]:
                target["content"]["text/plain"]["example"] = example["content"]


def described_fields() -> dict[str, dict[str, str]]:
    """What fields of answers mean, by the name of their schema."""
    text = files("app.http.api").joinpath("fields.json").read_text(encoding="utf-8")
    fields: dict[str, dict[str, str]] = json.loads(text)
    return fields


_pages = Router(tags=[])
_at = partial(_pages.api_route, methods=["GET", "HEAD"], include_in_schema=False)


@_at("/docs")
def _docs() -> HTMLResponse:
    shown = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Spillgate",
        swagger_js_url="/swagger/swagger-ui-bundle.js",
        swagger_css_url="/swagger/swagger-ui.css",
        swagger_favicon_url="/swagger/favicon-32x32.png",
    )
    # The rest of the page is drawn by a script: these links are for a reader without one.
    return HTMLResponse(bytes(shown.body).decode().replace("<body>", f"<body>{_LINKS}", 1))


@_at("/docs/errors")
def _errors() -> HTMLResponse:
    return HTMLResponse(page())


@_at("/")
def _root(request: Request) -> RedirectResponse:
    page = "/ui" if prefers(request.headers.get("accept", ""), "text/html") else "/docs"
    return RedirectResponse(page, headers={"Vary": "Accept"})


@_at("/openapi.json")
async def _openapi(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi())


def install(app: FastAPI, routes: RouteTable, *, needs_key: bool, key_for_pages: bool) -> None:
    """Adds /openapi.json, and the page /docs, which loads nothing from other hosts."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, routes, needs_key, key_for_pages)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    app.router.routes.extend(_pages.routes)
    app.mount("/swagger", StaticFiles(packages=[("fastapi_swagger", "resources")]))


def _security_of(route: Route, key_for_pages: bool) -> dict[str, Any]:
    """Returns the `security` of a route in the document; empty for a route that needs the key of the whole
    document."""
    traits = traits_of(route)
    if traits.is_open:
        return {"security": []}
    if traits.is_page:
        return {"security": [{"bearer": []}, {"basic": []}, *([] if key_for_pages else [{}])]}
    return {}


def _operations(served: list[Route]) -> dict[str, Any]:
    """Returns the operations of the routes that FastAPI does not serve, by path and method."""
    return {
        route.path: {method.lower(): deepcopy(operation) for method in route.methods or ()}
        for route in served
        if (operation := traits_of(route).operation) is not None
    }


def _declared(route: Route) -> list[str]:
    """Returns the statuses that the route itself describes."""
    if isinstance(route, APIRoute):
        return [str(status) for status in route.responses]
    return [*(traits_of(route).operation or {})["responses"]]


def _structs() -> dict[str, Any]:
    """The schemas of structs, which FastAPI does not describe."""
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template=REF + "{name}")
    for component in components.values():
        if "description" in component:
            # A docstring, which Python 3.13 indents differently from 3.11.
            component["description"] = " ".join(component["description"].split())
    for name, shape in _SHAPES.items():
        components[name]["properties"].update(deepcopy(shape))
        for field, text in _DESCRIBED.get(name, {}).items():
            if field in components[name]["properties"]:
                components[name]["properties"][field]["description"] = text
    return components


def _document(app: FastAPI, routes: RouteTable, needs_key: bool, key_for_pages: bool) -> dict[str, Any]:
    served = routes.documented
    document = get_openapi(title="Spillgate", version=app.version, description=DESCRIPTION, routes=served)
    for path, operations in _operations(served).items():
        document["paths"] = {path: operations | document["paths"].pop(path, {})} | document["paths"]
    _add_examples(document["paths"], served)
    schemas = document["components"]["schemas"]
    # FastAPI already describes a shape that other routes have too.
    schemas |= {name: schema for name, schema in _structs().items() if name not in schemas}
    for name, fields in described_fields().items():
        for field, text in fields.items():
            schemas[name]["properties"][field]["description"] = text
    schemas |= deepcopy(NAMED)
    # Generators of clients write the default of a member that is an object as no language has it.
    schemas["AccountingEntry"]["properties"]["details"].pop("default")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["examples"] = _problem_examples()
    document["components"]["securitySchemes"] = _KEYS
    document["security"] = [{"bearer": []}] if needs_key else [{"bearer": []}, {}]
    answers: dict[str, Any] = {}
    for route in served:
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            # The name of a method in generated clients.
            operation["operationId"] = route.name.replace("get_", "head_") if method == "HEAD" else route.name
            answered, problems = operation["responses"], _problems_of(route, answers)
            own = {status: answered[status] for status in _declared(route)}
            for status in own.keys() & problems.keys():
                shared = answers[problems[status]["$ref"].rpartition("/")[2]]
                own[status]["content"] |= shared["content"]
            operation["responses"] = dict(sorted((answered | problems | own).items()))
            operation |= _security_of(route, key_for_pages)
    document["components"]["responses"] = dict(sorted(answers.items()))
    settle(document)
    # A body that is a text has its fields in the query.
    for parameter in parameters_of(document):
        name, _, field = parameter["schema"].get("$ref", "").removeprefix(REF).partition(_FIELD)
        if field:
            parameter["schema"] = in_query(schemas[name]["properties"][field])
    return document
