"""The OpenAPI document: committed, equal to the app's, with an example for every answer."""

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from app.main import create_app
from app.settings import Settings
from domain.errors import every_error

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(storage_url="memory:")).openapi()


def test_the_committed_document_is_the_apps(document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert committed == json.loads(json.dumps(document)), "run `make openapi`"


def test_it_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")


def test_each_operation_is_named_by_its_function_and_each_list_says_what_it_holds(
    document: dict[str, Any],
) -> None:
    names = [operation["operationId"] for each in document["paths"].values() for operation in each.values()]
    assert len(set(names)) == len(names)
    assert {"post_result", "post_extract", "get_content", "head_content"} <= set(names)
    assert list(bare_lists(document, "")) == []


async def test_each_number_of_a_query_has_its_bounds_and_one_beyond_is_refused(
    document: dict[str, Any], client: httpx.AsyncClient
) -> None:
    found = 0
    for path, each in document["paths"].items():
        for method, operation in each.items():
            for one in operation.get("parameters", ()):
                if one["in"] != "query" or "integer" not in one["schema"].get("type", ()):
                    continue
                found += 1
                least, most = one["schema"]["minimum"], one["schema"]["maximum"]
                if method != "get":
                    continue
                for beyond in (least - 1, most + 1, 1 << 64):
                    query = {"pattern": "x", "q": "1", one["name"]: beyond}
                    answer = await client.get(path.format(**dict.fromkeys(PARAMETERS, "x")), params=query)
                    assert answer.status_code == 422, (path, one["name"], beyond)
    assert found > 10


PARAMETERS = ("handle", "session_id", "tenant_id", "hash", "name", "client", "kind", "code")


def bare_lists(node: Any, place: str) -> Iterator[str]:
    """Lists without `items`, which generators of clients refuse."""
    if isinstance(node, dict):
        if node.get("type") == "array" and not node.keys() & {"items", "prefixItems"}:
            yield place
        for name, below in node.items():
            if name not in ("example", "examples"):
                yield from bare_lists(below, f"{place}/{name}")
    elif isinstance(node, list):
        for below in node:
            yield from bare_lists(below, place)


def schemas_below(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects below `schema` and `schemas`, with the place where they are."""
    if isinstance(node, dict):
        yield place, node
        for name, below in node.items():
            if name not in ("example", "examples"):
                yield from schemas_below(below, f"{place}/{name}")
    elif isinstance(node, list):
        for below in node:
            yield from schemas_below(below, place)


def test_generators_of_clients_take_the_schemas(document: dict[str, Any]) -> None:
    paths = list(schemas_below(document["paths"], ""))
    named = document["components"]["schemas"]
    below = [each for name, schema in named.items() for each in schemas_below(schema, name)]
    everywhere = [*paths, *below]
    assert [place for place, node in everywhere if isinstance(node.get("title"), str)] == []
    # Names would be made up for what has none.
    assert [place for place, node in paths if "properties" in node] == []
    assert [
        place
        for place, node in below
        if place not in named and isinstance(node.get("type"), str | list) and "properties" in node
    ] == []
    # A choice with null alone becomes a class, and a validator that Go needs refuses a text in `oneOf`.
    choices = {place: node["anyOf"] for place, node in everywhere if "anyOf" in node}
    assert all({"type": "null"} not in choice or "$ref" in choice[0] for choice in choices.values())
    assert [place for place, node in everywhere if "oneOf" in node] == []
    # Without a format a number is of 32 bits, and a Java number a BigDecimal.
    numbers = [node.get("format") for _, node in everywhere if set(kinds_of(node)) & {"integer", "number"}]
    assert numbers
    assert set(numbers) == {"int64", "double"}
    constants = [name for schema in named.values() for name in schema.get("x-enum-varnames", ())]
    assert len(constants) == len(set(constants)) > 50
    for name in ("ResultIn", "ResultOut"):
        assert named[name]["properties"]["content"]["$ref"] == "#/components/schemas/Content"
    query = {one["name"]: one["schema"] for one in document["paths"]["/results"]["post"]["parameters"]}
    assert query["used_tokens"]["type"] == query["truncated_total"]["type"] == "integer"
    assert query["latency_ms"] == {"type": "number", "format": "double", "minimum": 0, "maximum": 1e12}


def kinds_of(node: dict[str, Any]) -> list[Any]:
    kinds = node.get("type")
    return kinds if isinstance(kinds, list) else [kinds] if isinstance(kinds, str) else []


def answers_of(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Operation, status and answer, each reference followed."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                name = answer.get("$ref", "").removeprefix("#/components/responses/")
                shared = document["components"]["responses"]
                yield f"{method.upper()} {path}", status, shared[name] if name else answer


def test_every_json_answer_has_an_example(document: dict[str, Any]) -> None:
    missing = [
        f"{operation} {status}"
        for operation, status, answer in answers_of(document)
        for media, content in answer.get("content", {}).items()
        if media.endswith(("/json", "+json")) and not content.keys() & {"example", "examples"}
    ]
    assert missing == []


def test_every_field_of_a_request_is_described_where_its_name_does_not_say_it(
    document: dict[str, Any],
) -> None:
    plain = {"session_id", "tool_name", "start", "end", "limit", "policy"}
    bare = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        if name.endswith("In")
        for field, rule in schema["properties"].items()
        if field not in plain and "description" not in rule
    ]
    assert bare == []


async def test_what_an_accept_header_chooses_is_in_the_document(
    document: dict[str, Any], client: httpx.AsyncClient
) -> None:
    kept = (await client.post("/results", json={"tool_name": "t", "content": "row\n" * 4000})).json()
    asked = {"handle": kept["handle"], "extract": "row"}
    called = {"name": "tool_output", "arguments": asked}
    for path, sent, medias in (
        ("/results", {"tool_name": "t", "content": "x"}, ["text/plain"]),
        ("/extract", asked, ["text/plain", "text/event-stream"]),
        ("/tools/call", called, ["text/plain"]),
    ):
        answer = document["paths"][path]["post"]["responses"]["200"]["content"]
        for media in ["application/json", *medias]:
            told = await client.post(path, json=sent, headers={"Accept": media})
            assert told.headers["content-type"].partition(";")[0] == media
            assert media in answer, path
    headers = [
        one["name"] for one in document["paths"]["/results"]["post"]["parameters"] if one["in"] == "header"
    ]
    assert headers == ["Idempotency-Key", "Prefer"]


def bodies_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON of each request and of each answer, with the place where it is."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if (body := operation.get("requestBody")) is not None:
                yield f"{method.upper()} {path} request", body["content"].get("application/json", {})
    for operation, status, answer in answers_of(document):
        yield f"{operation} {status}", answer.get("content", {}).get("application/json", {})


def test_examples_are_of_their_schemas_and_have_every_field(document: dict[str, Any]) -> None:
    definitions = {"components": document["components"]}
    for place, content in bodies_of(document):
        if "example" not in content or "schema" not in content:
            continue
        validator = Draft202012Validator({**definitions, **content["schema"]})
        assert [error.message for error in validator.iter_errors(content["example"])] == [], place
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        if name and not place.endswith("request"):
            schema = document["components"]["schemas"][name]
            given = content["example"].keys()
            assert set(schema["required"]) <= given <= schema["properties"].keys(), place


def test_every_problem_is_an_example_made_from_the_error_table(document: dict[str, Any]) -> None:
    examples = document["components"]["examples"]
    assert examples.keys() == {kind.code for kind in every_error()}
    named: set[str] = set()
    for operation, status, answer in answers_of(document):
        for code in answer.get("content", {}).get("application/problem+json", {}).get("examples", ()):
            assert str(examples[code]["value"]["status"]) == status, operation
            named.add(code)
    assert named == examples.keys()


def test_a_route_answers_what_follows_from_its_traits(document: dict[str, Any]) -> None:
    statuses: dict[str, set[int]] = {}
    for operation, status, _ in answers_of(document):
        statuses.setdefault(operation, set()).add(int(status))
    everywhere = {400, 403, 405, 408, 413, 415, 422, 431, 500, 503}
    assert all(found >= everywhere for found in statuses.values())
    assert statuses["GET /livez"] == everywhere | {200}
    assert statuses["GET /metrics"] == everywhere | {200, 401, 429}
    assert statuses["POST /results"] == everywhere | {200, 201, 401, 409, 410, 429, 507}
    assert statuses["GET /results/{handle}/content"] == everywhere | {200, 206, 304, 401, 404, 410, 416, 429}
    open_routes = {
        path
        for path, methods in document["paths"].items()
        for one in methods.values()
        if one.get("security") == []
    }
    assert open_routes == {"/livez", "/readyz", "/proof"}
    assert document["paths"]["/healthz"]["get"]["security"] == [{"bearer": []}, {"basic": []}, {}]


async def test_the_docs_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/swagger/swagger-ui-bundle.js" in page
    assert "://" not in page
    assert 'href="/openapi.json"' in page
    assert 'href="/docs/errors"' in page
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert (await client.get(f"/swagger/{asset}")).status_code == 200


async def test_a_problems_type_leads_to_its_explanation(client: httpx.AsyncClient) -> None:
    problem = (await client.get("/results/none")).json()
    path, anchor = problem["type"].split("#")
    page = (await client.get(path)).text
    assert f'id="{anchor}"' in page
    assert all(html.escape(kind.advice) in page for kind in every_error())
