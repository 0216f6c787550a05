"""What runs Spillgate elsewhere: valid by schema, in agreement with the code and with itself."""

import json
import re
import subprocess
import sys
import tomllib
from base64 import b64decode
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from manifests import (
    COMPOSE,
    DEPLOY,
    ROOT,
    Node,
    by_name,
    container,
    containers,
    dockerfile,
    documents,
    each_workload,
    environment,
    named,
    option,
    pod,
    redis_server,
    replica,
    secrets,
    services,
    sidecar,
    size,
    workloads,
)

from app import __version__
from app.http.api import request_body
from app.http.edge import server as serving
from app.settings import PREFIX, Settings
from beside.commands import COMMANDS
from domain import LOOPBACK_NAMES
from extraction import index_cache, queries, query_child
from extraction.retrieve import strategy as retrieve
from policies.documents import from_toml
from storage import LEDGERS, STORES
from tests.deploy.rendered import program, render_shared

OLDEST_KUBERNETES = "1.29"
DEPLOYING = (ROOT / "docs" / "deploy.md").read_text()
CHARTS = [path for path in DEPLOY.glob("**/*") if path.suffix in (".tpl", ".yaml", ".json", ".md")]
NAMING = [COMPOSE, *DEPLOY.glob("compose.*.yml"), *CHARTS, DEPLOY / "Dockerfile", ROOT / "docs" / "deploy.md"]


@pytest.mark.parametrize("file", [COMPOSE, *DEPLOY.glob("compose.*.yml")], ids=lambda path: path.name)
def test_compose_is_valid_by_the_compose_specification(file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("document", documents, ids=named)
def test_a_manifest_is_valid_in_the_oldest_and_the_newest_kubernetes(document: Node) -> None:
    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    # Named to say what Kubernetes would set.
    known.add("SPILLGATE_SERVICE_HOST")
    assert set(re.findall(rf"{PREFIX}[A-Z_]+", path.read_text())) <= known


@pytest.mark.parametrize(
    "given",
    [services["spillgate"]["environment"], environment(sidecar), environment(replica)],
    ids=["compose", "sidecar", "shared"],
)
def test_what_is_set_can_be_honoured(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.uds or settings.host in LOOPBACK_NAMES or settings.api_keys_file


def test_the_commands_in_a_pod_of_the_shared_shape_ask_its_own_replica() -> None:
    """It has no writable folder in which they would find it. A sidecar is found by its socket."""
    (port,) = [one["containerPort"] for one in replica["ports"] if one["name"] == "http"]
    assert environment(replica)["SPILLGATE_URL"] == f"http://127.0.0.1:{port}"


def test_what_results_and_sessions_are_kept_in_is_known() -> None:
    given = [services["spillgate"]["environment"]]
    for one in [one for workload in workloads for one in containers(workload)]:
        given.append({each["name"]: each["value"] for each in one.get("env", []) if "value" in each})
    stores = [each["SPILLGATE_STORAGE_URL"] for each in given if "SPILLGATE_STORAGE_URL" in each]
    ledgers = [each["SPILLGATE_LEDGER_URL"] for each in given if "SPILLGATE_LEDGER_URL" in each]
    # The replicas find theirs in a Secret, made by a command in the docs.
    command = (ROOT / "docs" / "deploy.md").read_text()
    secret = re.findall(r'--from-literal=storage-url="([^"]+)"', command)
    assert stores
    assert secret
    assert {url.partition(":")[0] for url in stores + secret} <= STORES.keys()
    assert {url.partition(":")[0] for url in ledgers + secret} <= LEDGERS.keys()


def test_one_port_everywhere_and_published_to_this_machine_alone() -> None:
    port = Settings.model_fields["port"].default
    service = by_name["Service-spillgate"]["spec"]["ports"][0]
    assert services["spillgate"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert "ports" not in services["redis"]
    assert f"EXPOSE {port}\n" in dockerfile
    assert replica["ports"] == [{"name": service["targetPort"], "containerPort": port}]
    assert service["port"] == port


def test_keys_are_where_they_are_looked_for() -> None:
    compose = services["spillgate"]
    (mount,) = [one for one in replica["volumeMounts"] if one["name"] == "keys"]
    (secret,) = compose["secrets"]
    assert compose["environment"]["SPILLGATE_API_KEYS_FILE"] == f"/run/secrets/{secret}"
    assert secrets[secret] == {"file": "./deploy/secrets/keys"}
    assert environment(replica)["SPILLGATE_API_KEYS_FILE"] == f"{mount['mountPath']}/keys"


def test_the_key_of_the_metrics_is_a_header_as_it_is_in_the_secret(tmp_path: Path) -> None:
    """Prometheus refuses a header with the newline that ends the file."""
    (line,) = re.findall(r"^kubectl create secret generic spillgate-metrics .*$", DEPLOYING, re.MULTILINE)
    (tmp_path / "deploy" / "secrets").mkdir(parents=True)
    (tmp_path / "deploy" / "secrets" / "prometheus.key").write_text("the-key\n")
    command = line.replace("kubectl", program("kubectl"), 1) + " --dry-run=client --output json"
    made = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True)
    assert b64decode(json.loads(made.stdout)["data"]["key"]) == b"the-key"


def test_the_url_with_the_password_is_a_file_and_no_part_of_the_environment() -> None:
    (mount,) = [one for one in replica["volumeMounts"] if one["name"] == "redis"]
    (volume,) = [one for one in pod(by_name["Deployment-spillgate"])["volumes"] if one["name"] == "redis"]
    (item,) = volume["secret"]["items"]
    assert environment(replica)["SPILLGATE_STORAGE_URL_FILE"] == f"{mount['mountPath']}/{item['path']}"
    assert f"--from-literal={item['key']}=" in DEPLOYING
    assert all("value" in each for each in replica["env"])


def test_probes_and_health_checks_ask_for_what_there_is() -> None:
    routes = (ROOT / "openapi" / "openapi.json").read_text()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{replica[probe]["httpGet"]["path"]}"' in routes
        assert replica[probe]["httpGet"]["port"] == replica["ports"][0]["name"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    _, program, command = services["spillgate"]["healthcheck"]["test"]
    assert program in scripts
    assert command in COMMANDS
    assert f'CMD ["{program}", "{command}"]' in dockerfile


def test_agent_and_sidecar_share_a_user_and_the_socket() -> None:
    uds = Path(environment(sidecar)["SPILLGATE_UDS"])
    for one in containers(by_name["Job-agent"]):
        mounted = {Path(mount["mountPath"]): mount["name"] for mount in one["volumeMounts"]}
        # Spillgate makes the directory of its socket itself, inside the volume, and closes it to others.
        assert mounted[uds.parents[1]] == "spillgate-socket"
        assert not {"runAsUser", "runAsGroup"} & set(one["securityContext"])
    assert environment(container("Job-agent", "agent"))["SPILLGATE_URL"] == f"unix:{uds}"


def test_the_state_directory_is_on_a_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"XDG_STATE_HOME=(\S+)", dockerfile)
    assert found is not None
    monkeypatch.setenv("XDG_STATE_HOME", found[1])
    state = Settings().storage_url.removeprefix("disk://")
    assert f"--mode 0700 {state}\n" in dockerfile
    assert {"name": "spillgate-state", "mountPath": state} in sidecar["volumeMounts"]


@each_workload
def test_a_pod_keeps_to_the_restricted_standard(workload: Node) -> None:
    user = pod(workload)["securityContext"]
    assert user["runAsNonRoot"] is True
    assert user["runAsUser"] > 0
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(workload)["automountServiceAccountToken"] is False
    for one in containers(workload):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["limits"]["memory"]


def test_containers_are_closed_and_bounded_alike() -> None:
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["user"].partition(":")[0]) > 0
        assert service["mem_limit"]
        assert service["cpus"]
        assert service["pids_limit"]
        assert service["healthcheck"]["test"]
    assert f"USER {services['spillgate']['user']}\n" in dockerfile


@each_workload
def test_services_put_nothing_into_the_environment(workload: Node) -> None:
    # A Service spillgate would set SPILLGATE_PORT to an address, and SPILLGATE_SERVICE_HOST is unknown.
    assert pod(workload)["enableServiceLinks"] is False


@each_workload
def test_what_is_mounted_is_there(workload: Node) -> None:
    claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
    there = {*claims, *(volume["name"] for volume in pod(workload).get("volumes", []))}
    assert {mount["name"] for one in containers(workload) for mount in one["volumeMounts"]} == there


def test_selectors_find_pods() -> None:
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in workloads]
    found = [
        one["spec"].get("selector") or one["spec"].get("podSelector") for one in documents if "spec" in one
    ]
    selectors = [one.get("matchLabels", one) for one in found if one]
    assert len(selectors) == len([one for one in documents if one["kind"] not in ("Job", "ConfigMap")])
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods)


def test_a_stop_has_the_time_that_it_needs() -> None:
    assert int(services["spillgate"]["stop_grace_period"].removesuffix("s")) > serving.STOP_SECONDS
    for name in ("Job-agent", "Deployment-spillgate"):
        assert pod(by_name[name])["terminationGracePeriodSeconds"] > serving.STOP_SECONDS


def test_the_store_is_full_before_its_volume_is() -> None:
    (state,) = [
        one["emptyDir"] for one in pod(by_name["Job-agent"])["volumes"] if one["name"] == "spillgate-state"
    ]
    volume = size(state["sizeLimit"])
    assert 2 * int(environment(sidecar)["SPILLGATE_STORAGE_MAX_BYTES"]) <= volume
    assert size(sidecar["resources"]["limits"]["ephemeral-storage"]) > volume


def test_the_memory_that_is_allowed_holds_all_that_has_a_bound() -> None:
    at_rest, for_each_byte_searched = 128 << 20, 4

    def needed_at_once(queries_at_a_time: int, largest: int) -> int:
        return (
            at_rest
            + request_body.LEAST_POOL_BYTES
            + queries_at_a_time * query_child.MEMORY_BYTES
            + largest * for_each_byte_searched
            + index_cache.MAX_INDEX_BYTES
        )

    for limit in (replica["resources"]["limits"]["memory"], services["spillgate"]["mem_limit"]):
        assert size(limit) > needed_at_once(queries.AT_A_TIME, retrieve.MOST_BYTES)
    # One tenant, and bodies of a size that the manifest sets.
    largest = int(environment(sidecar)["SPILLGATE_MAX_BODY_BYTES"])
    assert size(sidecar["resources"]["limits"]["memory"]) > needed_at_once(1, largest)
    assert at_rest >= size(sidecar["resources"]["requests"]["memory"])


def test_compose_has_the_caps_that_the_chart_derives() -> None:
    memory = size(option(services["redis"]["command"], "--maxmemory"))
    derived = next(
        one for one in render_shared(f"redis.maxMemory={memory >> 30}Gi") if one["kind"] == "Deployment"
    )
    chart = environment(pod(derived)["containers"][0])
    compose = services["spillgate"]["environment"]
    alike = [name for name in chart if name.endswith(("_BYTES", "_SESSIONS", "LEDGER_RETENTION_SECONDS"))]
    assert len(alike) == 6
    assert {name: compose[name] for name in alike} == {name: chart[name] for name in alike}


def test_caps_of_the_shared_manifest_are_for_the_redis_beside_it() -> None:
    memory = size(option(redis_server["args"], "--maxmemory"))
    assert int(environment(replica)["SPILLGATE_STORAGE_MAX_BYTES"]) == memory * 2 // 5
    assert int(environment(replica)["SPILLGATE_LEDGER_TOTAL_MAX_BYTES"]) == memory * 3 // 5


def test_a_model_backend_is_added_to_compose_with_its_key_as_a_secret() -> None:
    added = yaml.safe_load((DEPLOY / "compose.model.yml").read_text())
    service = added["services"]["spillgate"]
    assert service["environment"]["SPILLGATE_LLM_API_KEY_FILE"] == "/run/secrets/model-key"
    assert set(service["secrets"]) == {*services["spillgate"]["secrets"], *added["secrets"]}


def test_a_ledger_on_postgresql_is_added_to_compose_with_its_password_as_a_secret() -> None:
    added = yaml.safe_load((DEPLOY / "compose.postgres.yml").read_text())
    service, server = added["services"]["spillgate"], added["services"]["postgres"]
    assert service["environment"]["SPILLGATE_LEDGER_URL_FILE"] == "/run/secrets/ledger-url"
    assert {*service["secrets"], *server["secrets"]} == {*services["spillgate"]["secrets"], *added["secrets"]}
    stored = int(service["environment"]["SPILLGATE_STORAGE_MAX_BYTES"])
    assert stored == size(option(services["redis"]["command"], "--maxmemory")) * 4 // 5
    guarded = services["redis"]
    assert all(server[name] == guarded[name] for name in ("read_only", "cap_drop", "security_opt", "restart"))


def test_compose_mounts_a_policy_file_that_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    compose = services["spillgate"]
    policy = Path(compose["environment"]["SPILLGATE_POLICY_FILE"])
    mounted = dict(reversed(volume.split(":")[:2]) for volume in compose["volumes"])
    file = ROOT / mounted[str(policy.parent)] / policy.name
    with_examples = (
        file.read_text().replace("# [", "[").replace("# max", "max").replace("# storage", "storage")
    )
    for text in (file.read_text(), with_examples):
        from_toml(text, "policy.toml")


def test_redis_has_room_to_rewrite_its_aof() -> None:
    compose, there = services["redis"], redis_server["resources"]["limits"]["memory"]
    assert size(compose["mem_limit"]) >= 2 * size(option(compose["command"], "--maxmemory"))
    assert size(there) >= 2 * size(option(redis_server["args"], "--maxmemory"))


def test_the_kustomization_names_manifests_and_our_image() -> None:
    found = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert all((DEPLOY / resource).is_file() for resource in found["resources"])
    assert [image["newTag"] for image in found["images"] if image["name"] == "spillgate"] == [__version__]
