"""As much of the API server of Kubernetes as helm asks: which kinds there are, and Secrets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

KINDS = {
    "v1": ("ConfigMap", "Secret", "Service"),
    "apps/v1": ("Deployment",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
}

Answers = dict[str, dict[str, Any]]


def _resources(version: str) -> dict[str, Any]:
    kinds = [
        {
            "name": f"{kind.lower()}s",
            "singularName": kind.lower(),
            "namespaced": True,
            "kind": kind,
            "verbs": ["get"],
        }
        for kind in KINDS[version]
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": kinds}


def _group(version: str) -> dict[str, Any]:
    name, _, short = version.partition("/")
    served = {"groupVersion": version, "version": short}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _discovery() -> Answers:
    groups = [version for version in KINDS if "/" in version]
    return {
        "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(one) for one in groups]},
        "/api/v1": _resources("v1"),
        **{f"/apis/{one}": _resources(one) for one in groups},
    }


@contextmanager
def kubernetes_api(secrets: Answers) -> Iterator[str]:
    """Its URL. `secrets`: by name, in the namespace `default`; may be changed while it serves."""
    discovery = _discovery()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = discovery.get(path) or secrets.get(
                path.removeprefix("/api/v1/namespaces/default/secrets/")
            )
            missing = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
