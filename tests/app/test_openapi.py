"""The OpenAPI document: committed, equal to the app's, with an example for every answer."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(storage_url="memory:")).openapi()


def test_the_committed_document_is_the_apps(document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert committed == json.loads(json.dumps(document)), "run `make openapi`"


def test_it_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")


def test_every_json_answer_has_an_example(document: dict[str, Any]) -> None:
    missing = [
        f"{method} {path} {status}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        for media, content in answer.get("content", {}).items()
        if media.endswith(("/json", "+json")) and "example" not in content
    ]
    assert missing == []


def test_every_route_of_the_contract_is_there(document: dict[str, Any]) -> None:
    routes = {
        f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations
    }
    assert routes >= {
        "POST /results",
        "POST /check",
        "POST /extract",
        "GET /results/{handle}",
        "DELETE /results/{handle}",
        "GET /results/{handle}/content",
        "HEAD /results/{handle}/content",
        "GET /results/{handle}/lines",
        "GET /results/{handle}/grep",
        "GET /results/{handle}/query",
        "PUT /sessions/{session_id}",
        "GET /sessions/{session_id}",
        "DELETE /sessions/{session_id}",
        "GET /sessions",
        "POST /sessions/{session_id}/usage",
        "GET /tools",
        "GET /accounting/entries",
        "GET /accounting/summary",
        "GET /livez",
        "GET /readyz",
        "GET /healthz",
        "GET /metrics",
    }


async def test_the_docs_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/swagger/swagger-ui-bundle.js" in page
    assert "://" not in page
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert (await client.get(f"/swagger/{asset}")).status_code == 200


async def test_a_problems_type_leads_to_its_explanation(client: httpx.AsyncClient) -> None:
    problem = (await client.get("/results/none")).json()
    path, anchor = problem["type"].split("#")
    page = (await client.get(path)).text
    assert f'id="{anchor}"' in page
