"""The manifests, read; and what is asked of them more than once."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = ROOT / "docker-compose.yml"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))

Node = dict[str, Any]

services: dict[str, Node] = yaml.safe_load(COMPOSE.read_text())["services"]
secrets: dict[str, Node] = yaml.safe_load(COMPOSE.read_text())["secrets"]
documents: list[Node] = [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text())]
dockerfile = (DEPLOY / "Dockerfile").read_text()


def named(document: Node) -> str:
    return f"{document['kind']}-{document['metadata']['name']}"


by_name = {named(one): one for one in documents}
workloads = [one for one in documents if "template" in one.get("spec", {})]
each_workload = pytest.mark.parametrize("workload", workloads, ids=named)


def pod(workload: Node) -> Node:
    spec: Node = workload["spec"]["template"]["spec"]
    return spec


def containers(workload: Node) -> list[Node]:
    return [*pod(workload).get("initContainers", []), *pod(workload)["containers"]]


def container(workload: str, name: str) -> Node:
    return next(one for one in containers(by_name[workload]) if one["name"] == name)


def environment(one: Node) -> dict[str, str]:
    """What a container is given; what a Secret would hold is made up."""
    return {each["name"]: each.get("value", "redis://:secret@spillgate-redis:6379/0") for each in one["env"]}


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def size(text: str) -> int:
    """Bytes of a size as Compose, Kubernetes and Redis write it: each of theirs that is used is binary."""
    match = re.fullmatch(r"(\d+)(?:(g|gb|Gi)|Mi)", text)
    assert match is not None, text
    return int(match[1]) << (30 if match[2] else 20)


sidecar = container("Job-agent", "spillgate")
replica = container("Deployment-spillgate", "spillgate")
redis_server = container("StatefulSet-spillgate-redis", "redis")
