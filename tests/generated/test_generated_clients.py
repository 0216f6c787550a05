"""Clients that four generators make of openapi/openapi.json compile, in Python and TypeScript under the
strictest settings, and make the main calls. `make clients-generated` installs the generators."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.forking import ROOT
from tests.faults.service_process import Service

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
TOOLS = ROOT / ".generated"
DOCUMENT = ROOT / "openapi" / "openapi.json"
ROWS = "city,amount\n" + "".join(f"{('Oslo', 'Rome')[n % 2]},{n}\n" for n in range(3000))
SAID = {
    "passed": "fits",
    "outcome": "store",
    "bytes": len(ROWS),
    "allowed": False,
    "answered": True,
    "line": "Rome,1",
    "matches": 50,
    "result": [{"n": 3000}],
    "used": 52_000,
    "offered": "tool_output",
    "tool": "2: Oslo,0",
    "stored": 1,
    "entries": 7,
    "code": "result_not_found",
}


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    path = os.pathsep.join((str(TOOLS / "venv" / "bin"), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_calls(command: list[str | Path], folder: Path, service: Service, **variables: str) -> None:
    host, port = service.address
    places = {"SPILLGATE_URL": f"http://{host}:{port}", "SPILLGATE_SESSION": "run-1"}
    assert json.loads(run(command, folder, **places, **variables)) == SAID


async def test_the_client_of_openapi_python_client(tmp_path: Path, service: Service) -> None:
    made = ["openapi-python-client", "generate", "--path", DOCUMENT, "--meta", "none", "--output-path"]
    run([*made, "spillgate_generated"], tmp_path)
    shutil.copy(HERE / "main_calls.py", tmp_path)
    # The generator hands `*args: object` to the __exit__ of httpx, whatever the document says.
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-spillgate_generated.client]\ndisable_error_code = arg-type\n"
    )
    run(["mypy", "main_calls.py", "spillgate_generated"], tmp_path)
    check_calls(["python", "main_calls.py"], tmp_path, service)


async def test_the_types_of_openapi_typescript(tmp_path: Path, service: Service) -> None:
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    for name in ("package.json", "main_calls.ts"):
        shutil.copy(HERE / name, tmp_path)
    run(["npx", "openapi-typescript", DOCUMENT, "--output", "spillgate.d.ts"], tmp_path)
    strict = [
        "--strict",
        "--noUncheckedIndexedAccess",
        "--exactOptionalPropertyTypes",
        "--noPropertyAccessFromIndexSignature",
    ]
    target = ["--target", "es2022", "--module", "nodenext", "--skipLibCheck", "false"]
    run(["npx", "tsc", *strict, *target, "main_calls.ts"], tmp_path)
    check_calls(["node", "main_calls.js"], tmp_path, service)


def generate(language: str, folder: Path, *options: str) -> None:
    """The client of OpenAPI Generator, without the tests and pages that it makes beside it."""
    left_out = "models,apis,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    made = ["openapi-generator-cli", "generate", "-g", language, "-i", DOCUMENT, "-o", "client"]
    run([*made, "--global-property", left_out, *options], folder)


async def test_the_client_of_openapi_generator_for_go(tmp_path: Path, service: Service) -> None:
    generate("go", tmp_path)
    (tmp_path / "client" / "main_calls").mkdir()
    shutil.copy(HERE / "main_calls.go", tmp_path / "client" / "main_calls")
    # No file imports what its go.mod requires: the document has no `oneOf`.
    offline = {"GOPROXY": "off", "GOCACHE": str(TOOLS / "go")}
    run(["go", "vet", ".", "./main_calls"], tmp_path / "client", **offline)
    check_calls(["go", "run", "./main_calls"], tmp_path / "client", service, **offline)


async def test_the_client_of_openapi_generator_for_java(tmp_path: Path, service: Service) -> None:
    (jackson,) = TOOLS.glob("venv/lib/*/site-packages/openapi_generator_cli/openapi-generator.jar")
    # The HTTP client of the JDK, and Jackson, which the generator brings. Its code for a union of a text and
    # a list, `List<ContentBlock>.class`, is no Java: that union is an Object.
    library = ["--library", "native", "--additional-properties", "openApiNullable=false"]
    generate("java", tmp_path, *library, "--schema-mappings", "Content=Object,ToolArguments=Object")
    shutil.copy(HERE / "MainCalls.java", tmp_path)
    classes = f"{jackson}:/usr/share/java/geronimo-annotation-1.3-spec.jar:made"
    sources = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.java")]
    run(["javac", "-nowarn", "-proc:none", "-d", "made", "-cp", classes, *sources], tmp_path)
    check_calls(["java", "-cp", classes, "MainCalls"], tmp_path, service)
