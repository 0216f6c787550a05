"""`resolve` of the Python client: arguments of other tools, or what the model reads instead."""

import json

import pytest

from spillgate import Spillgate, governed
from spillgate.references import TOO_DEEP, UNRESOLVED
from tests.faults.service_process import Service
from tests.misbehaving_server import OF_THE_SERVICE, answering

pytestmark = pytest.mark.anyio

TEXT = "a line\n" * 9000
REFERENCE = "spillgate://session-s/file-00000000-0000-4000-8000-000000000000"


def client_of(service: Service, session: str = "s") -> Spillgate:
    return Spillgate(base_url="http://{}:{}".format(*service.address), session_id=session)


async def test_an_object_and_its_json_get_the_text_and_keep_all_else(service: Service) -> None:
    with client_of(service) as client:
        reference = f"spillgate://{client.govern('fetch', None, TEXT).handle}"
        marker = object()
        given = {"a": [reference, marker], "b": f"see {reference}"}
        resolved = client.resolve(given, "write")
        assert resolved.refusal is None
        assert resolved.arguments == {"a": [TEXT, marker], "b": f"see {reference}"}
        assert given["a"] == [reference, marker]
        assert client.resolve(f"{reference}#lines=1", "write").arguments == "a line\n"
        as_json = client.resolve(json.dumps({"a": reference}))
        assert json.loads(as_json.arguments) == {"a": TEXT}
        refused = client.resolve({"a": f"{reference}#rows=1"})
        assert refused.refusal is not None
        assert refused.refusal.endswith(" The tool did not run.")
    with client_of(service, "other") as other:
        assert "of this session" in (other.resolve({"a": reference}).refusal or "")


async def test_a_governed_function_gets_the_text_or_does_not_run(service: Service) -> None:
    saved: list[str] = []
    with client_of(service) as client:

        @governed(client=client)
        def save(text: str, *, copies: int = 1) -> str:
            saved.append(text * copies)
            return "saved"

        message = client.govern("fetch", None, TEXT, passes_on="any")
        assert "spillgate://<handle>" in message.text
        assert save(f"spillgate://{message.handle}") == "saved"
        assert save(text=f"spillgate://{message.handle}#lines=1", copies=2) == "saved"
        assert save(f"spillgate://{message.handle}#rows=1").endswith(" The tool did not run.")
    assert saved == [TEXT, "a line\na line\n"]


@pytest.mark.parametrize("answer", OF_THE_SERVICE.values(), ids=OF_THE_SERVICE)
def test_without_an_answer_the_tool_is_not_to_run(answer: bytes) -> None:
    within: list[object] = []
    within.append(within)
    deep: object = REFERENCE
    for _ in range(3000):
        deep = [deep]
    with answering(answer) as url, Spillgate(base_url=url, patience=0, timeout=1) as client:
        assert client.resolve({"a": REFERENCE}).refusal == UNRESOLVED
        for nested in (deep, [within, REFERENCE], "[" * 200_000 + f'"{REFERENCE}"' + "]" * 200_000):
            assert client.resolve(nested).refusal == TOO_DEEP
        for arguments in ({"a": f"see {REFERENCE}"}, "no JSON", '"spillgate://', within, None):
            resolved = client.resolve(arguments)
            assert resolved.arguments is arguments
            assert resolved.refusal is None
