"""Clients that three generators make of openapi/openapi.json compile under their strictest settings and make
the main calls. `make clients-generated` installs the generators."""

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
    # Without the option, a field of a request that has a default is required.
    made = ["npx", "openapi-typescript", DOCUMENT, "--default-non-nullable", "false"]
    run([*made, "--output", "spillgate.d.ts"], tmp_path)
    strict = [
        "--strict",
        "--noUncheckedIndexedAccess",
        "--exactOptionalPropertyTypes",
        "--noPropertyAccessFromIndexSignature",
    ]
    target = ["--target", "es2022", "--module", "nodenext", "--skipLibCheck", "false"]
    run(["npx", "tsc", *strict, *target, "main_calls.ts"], tmp_path)
    check_calls(["node", "main_calls.js"], tmp_path, service)


async def test_the_client_of_openapi_generator_for_go(tmp_path: Path, service: Service) -> None:
    properties = "packageName=spillgate,withGoMod=false,enumClassPrefix=true"
    made = ["openapi-generator-cli", "generate", "-g", "go", "-i", DOCUMENT, "-o", "spillgate"]
    left_out = "models,apis,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    run([*made, "--global-property", left_out, "--additional-properties", properties], tmp_path)
    shutil.copytree("/usr/share/gocode/src/gopkg.in/validator.v2", tmp_path / "validator")
    (tmp_path / "validator" / "go.mod").write_text("module gopkg.in/validator.v2\n")
    needed = "require gopkg.in/validator.v2 v2.0.0\nreplace gopkg.in/validator.v2 => ./validator\n"
    (tmp_path / "go.mod").write_text(f"module spillgate\ngo 1.19\n{needed}")
    shutil.copy(HERE / "main_calls.go", tmp_path)
    offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOCACHE": str(TOOLS / "go")}
    run(["go", "vet", ".", "./spillgate"], tmp_path, **offline)
    check_calls(["go", "run", "."], tmp_path, service, **offline)
