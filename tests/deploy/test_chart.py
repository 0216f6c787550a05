"""The charts, rendered by helm: valid, with safe defaults, and the source of the plain manifests."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from app.settings import Settings
from domain import __version__
from tests.deploy import rendered
from tests.deploy.kubernetes_api import kubernetes_api
from tests.deploy.manifests import DEPLOY, Node, environment, pod
from tests.deploy.rendered import helm_template, render_agent, render_shared

CHART, SIDECAR = DEPLOY / "chart", DEPLOY / "sidecar"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
CUSTOM = {"PodMonitor", "PrometheusRule", "HTTPRoute"}
"""Kinds that are no part of Kubernetes: no schema of theirs is here."""


def yaml_blocks(path: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.+?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


README = yaml_blocks(CHART / "README.md")
DEPENDENCY, LINES, SIDECAR_VALUES = yaml_blocks(SIDECAR / "README.md")
each_example = pytest.mark.parametrize("values", README, ids=lambda text: text.partition(":")[0])


def check(documents: list[Node]) -> None:
    for document in documents:
        if document["kind"] in CUSTOM:
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def one(documents: list[Node], kind: str, name: str = "spillgate") -> Node:
    return next(each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))


def settings_of(documents: list[Node]) -> dict[str, str]:
    return environment(pod(one(documents, "Deployment"))["containers"][0])


def test_the_plain_manifests_are_those_of_the_charts() -> None:
    for path, text in rendered.manifests().items():
        assert path.read_text() == text, f"{path.name} differs from its chart: run `make manifests`"


def test_the_schemas_of_the_charts_name_the_settings_that_there_are() -> None:
    for path, text in rendered.schemas().items():
        assert path.read_text() == text, f"{path} differs from app/settings.py: run `make manifests`"
        names = json.loads(text)["properties"]["settings"]["properties"]
        assert "SPILLGATE_LOG_LEVEL" in names
        assert not {"SPILLGATE_HOST", "SPILLGATE_LLM_API_KEY", "SPILLGATE_KEY"} & set(names)


def test_settings_arrive_as_they_were_written() -> None:
    written = {
        "SPILLGATE_MAX_BODY_BYTES": 8388608,
        "SPILLGATE_REQUIRE_BUDGET": True,
        "SPILLGATE_AUDIT": "-",
        "OTEL_SERVICE_NAME": 'b&c="<1>"',
    }
    expected = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in written.items()
    }
    values = json.dumps({"settings": written})
    (job,) = yaml.safe_load_all(render_agent(values=f'{{"spillgate-sidecar": {values}}}'))
    shared = settings_of(render_shared(values=values))
    for given in (shared, environment(pod(job)["initContainers"][0])):
        assert given.items() >= expected.items()


def test_both_charts_pass_helms_own_checks_and_are_of_this_version() -> None:
    done = rendered.run("helm", "lint", "--strict", str(CHART), str(SIDECAR))
    assert done.returncode == 0, done.stdout
    for chart in (CHART, SIDECAR):
        described = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert described["version"] == described["appVersion"] == __version__
    assert yaml.safe_load((SIDECAR / "values.yaml").read_text())["image"]["tag"] == __version__


@each_example
def test_the_values_of_the_readme_render_what_kubernetes_and_the_service_accept(
    monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    documents = render_shared(values=values)
    check(documents)
    for name, value in settings_of(documents).items():
        monkeypatch.setenv(name, value)
    assert Settings().api_keys_file == Path("/etc/spillgate/keys/keys")
    mounts = pod(one(documents, "Deployment"))["containers"][0]["volumeMounts"]
    volumes = pod(one(documents, "Deployment"))["volumes"]
    assert [mount["name"] for mount in mounts] == [volume["name"] for volume in volumes]
    files = {Path(value) for value in settings_of(documents).values() if value.startswith("/etc/spillgate")}
    listed = {
        Path("/etc/spillgate", volume["name"], item["path"])
        for volume in volumes
        if "secret" in volume
        for item in volume["secret"]["items"]
    }
    assert files == listed | {Path("/etc/spillgate/policy/policy.toml")}


def test_a_policy_is_mounted_as_it_was_given() -> None:
    (values,) = [text for text in README if "policy:" in text]
    text = one(render_shared(values=values), "ConfigMap", "spillgate-policy")["data"]["policy.toml"]
    assert text == yaml.safe_load(values)["policy"]


def test_model_gateway_and_further_rules_open_the_network_for_what_was_asked_alone() -> None:
    def rules(values: str = "") -> Node:
        spec: Node = one(render_shared(values=values), "NetworkPolicy")["spec"]
        return spec

    plain = rules()
    assert [rule["ports"][0]["port"] for rule in plain["egress"]] == [53, 6379]
    blocks = [peer["ipBlock"] for rule in plain["egress"] for peer in rule["to"] if "ipBlock" in peer]
    # NodeLocal DNSCache listens at this address of the node: no selector of Pods allows it.
    assert blocks == [{"cidr": "169.254.20.10/32"}]
    by_section = {text.partition(":")[0]: text for text in README}
    model = rules(by_section["model"])["egress"]
    assert [rule["ports"][0]["port"] for rule in model] == [53, 6379, 443]
    assert model[-1]["to"][0]["ipBlock"]["except"] == ["169.254.0.0/16"]
    assert len(rules(by_section["httpRoute"])["ingress"][0]["from"]) == len(plain["ingress"][0]["from"]) + 1


def test_route_and_autoscaler_name_the_service_and_the_deployment() -> None:
    documents = render_shared(values=next(text for text in README if text.startswith("httpRoute")))
    (rule,) = one(documents, "HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": "130s"}
    (backend,) = rule["backendRefs"]
    service = one(documents, "Service")
    assert backend == {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}
    scaler = one(documents, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "spillgate"}
    (metric,) = scaler["metrics"]
    # A share of the core that an event loop has. With a smaller request a full node would hide the load.
    assert metric["resource"]["target"] == {"type": "AverageValue", "averageValue": "600m"}
    (container,) = pod(one(documents, "Deployment"))["containers"]
    assert container["resources"]["requests"]["cpu"] == "600m"
    assert "replicas" not in one(documents, "Deployment")["spec"]


def test_alerts_and_dashboard_are_the_shipped_ones() -> None:
    documents = render_shared(values=next(text for text in README if text.startswith("podMonitor")))
    rule, board = one(documents, "PrometheusRule"), one(documents, "ConfigMap", "spillgate-dashboard")
    assert rule["spec"] == yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert json.loads(board["data"]["spillgate.json"]) == json.loads((DEPLOY / "grafana.json").read_text())
    monitors = [each for each in documents if each["kind"] == "PodMonitor"]
    assert [each["metadata"]["name"] for each in monitors] == ["spillgate", "spillgate-sidecars"]
    assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in monitors)


def test_the_alerts_watch_the_jobs_of_any_release() -> None:
    given = "podMonitor: { enabled: true, sidecars: true }"
    text = helm_template(CHART, "shared", values=given)
    monitors = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "PodMonitor"]
    jobs = [
        relabeling["replacement"]
        for each in monitors
        for endpoint in each["spec"]["podMetricsEndpoints"]
        for relabeling in endpoint["relabelings"]
        if relabeling["targetLabel"] == "job"
    ]
    watched = set(re.findall(r'job=~"([^"]+)"', (DEPLOY / "alerts.yaml").read_text()))
    assert len(jobs) == len(monitors) == 2
    assert all(re.fullmatch(pattern, job) for pattern in watched for job in jobs)
    assert watched


def test_a_packaged_chart_holds_alerts_and_dashboard(tmp_path: Path) -> None:
    done = rendered.run("helm", "package", "--destination", str(tmp_path), str(CHART))
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / f"spillgate-{__version__}.tgz") as packed:
        for name in ("alerts.yaml", "grafana.json"):
            file = packed.extractfile(f"spillgate/files/{name}")
            assert file is not None
            assert file.read() == (DEPLOY / name).read_bytes()


@pytest.mark.parametrize(
    "values",
    [
        "user: 0",
        "user: root",
        "replica: 2",
        "replicas: 0",
        "keys: { existingSecret: '' }",
        "keys: { existingSecret: null }",
        "redis: { existingSecret: '' }",
        "redis: { maxMemory: 6GB }",
        "redis: { url: 'redis://:password@host' }",
        "quotas: { tenantPercent: 0 }",
        "quotas: { tenantPercent: 101 }",
        "model: { baseUrl: 'https://api.example.com/v1' }",
        "model: { apiKey: secret }",
        "settings: { SPILLGATE_API_KEYS_FILE: /dev/null }",
        "settings: { SPILLGATE_LLM_API_KEY: secret }",
        "settings: { SPILLGATE_URL: http://elsewhere }",
        "settings: { LD_PRELOAD: /x }",
        "settings: { SPILLGATE_LOG_LEVL: warning }",
        "settings: { SPILLGATE_STORE_FALLBACK: disk }",
        "settings: { SPILLGATE_TENANT: team }",
        "settings: { SPILLGATE_MAX_BYTES: [1] }",
        "httpRoute: { enabled: true }",
        "httpRoute: { requestTimeout: 2 minutes }",
        "httpRoute: { requestTimeout: 130 }",
        "podMonitor: { labels: { release: 1 } }",
        "autoscaling: { cpu: 60 }",
        "autoscaling: { cpuPercent: 70 }",
        "image: { digest: latest }",
        "resources: { limits: null }",
        "securityContext: { privileged: true }",
    ],
)
def test_the_schema_refuses(values: str) -> None:
    # helm names the section, or the name of a setting.
    named = "|".join(re.findall(r"(\w+):", values))
    with pytest.raises(ValueError, match=f"schema(.|\n)+({named})"):
        render_shared(values=values)


@pytest.mark.parametrize("setting", ["user=0", "storage=4", "settings.SPILLGATE_LOG_LEVL=warning"])
def test_the_schema_of_the_library_refuses(setting: str) -> None:
    with pytest.raises(
        ValueError, match=f"spillgate-sidecar(.|\n)+{setting.partition('=')[0].split('.')[-1]}"
    ):
        render_agent(f"spillgate-sidecar.{setting}")


def secret(uid: str, **data: str) -> Node:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"uid": uid}, "data": data}


def test_pods_start_again_when_a_secret_changes_that_is_read_at_the_start_alone() -> None:
    model = "model.baseUrl=https://api.example.com/v1", "model.names={m}", "model.existingSecret=model-key"
    secrets = {
        "spillgate-redis": secret("1", url="YQ=="),
        "spillgate-keys": secret("2", keys="YQ=="),
        "model-key": secret("3", key="YQ=="),
    }

    def annotations(api: str) -> Node:
        server = "--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", api
        given = [part for one in (*model, "podAnnotations.team=a") for part in ("--set", one)]
        done = rendered.run("helm", "template", "spillgate", str(CHART), *server, *given)
        assert done.returncode == 0, done.stderr
        deployment = one([each for each in yaml.safe_load_all(done.stdout) if each], "Deployment")
        found: Node = deployment["spec"]["template"]["metadata"]["annotations"]
        assert found["team"] == "a"
        return found

    with kubernetes_api(secrets) as api:
        first = annotations(api)
        assert annotations(api) == first
        secrets["spillgate-keys"]["data"]["keys"] = "Yg=="
        assert annotations(api) == first
        secrets["model-key"]["data"]["key"] = "Yg=="
        second = annotations(api)
        secrets["spillgate-redis"]["data"]["url"] = "Yg=="
        third = annotations(api)
        # Passwords cannot be tried against the checksum without the uid.
        secrets["spillgate-redis"]["metadata"]["uid"] = "4"
        fourth = annotations(api)
    assert len({each["checksum/secrets"] for each in (first, second, third, fourth)}) == 4
    plain = one(render_shared(*model), "Deployment")
    assert "annotations" not in plain["spec"]["template"]["metadata"]


def test_the_caps_are_derived_from_the_memory_of_redis() -> None:
    given = settings_of(render_shared("redis.maxMemory=2Gi", "quotas.tenantPercent=10"))
    stored, ledgers = (2 << 30) * 2 // 5, (2 << 30) * 3 // 5
    assert given["SPILLGATE_STORAGE_MAX_BYTES"] == str(stored)
    assert given["SPILLGATE_TENANT_STORAGE_MAX_BYTES"] == str(stored // 10)
    assert given["SPILLGATE_LEDGER_TOTAL_MAX_BYTES"] == str(ledgers)
    assert given["SPILLGATE_LEDGER_MAX_BYTES"] == str(ledgers // 10)


def test_the_image_may_be_named_by_its_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    documents = render_shared("image.repository=registry.example.com/spillgate", f"image.digest={digest}")
    found = pod(one(documents, "Deployment"))["containers"][0]["image"]
    assert found == f"registry.example.com/spillgate@{digest}"


def test_a_ledger_on_postgresql_has_its_secret_its_bound_and_its_way_through_the_network() -> None:
    peers = "postgres.peers[0].ipBlock.cidr=10.1.3.0/24"
    documents = render_shared("postgres.existingSecret=our-postgres", peers)
    check(documents)
    given = settings_of(documents)
    assert given["SPILLGATE_LEDGER_URL_FILE"] == "/etc/spillgate/postgres/ledger-url"
    assert given["SPILLGATE_LEDGER_MAX_BYTES"] == str(10 << 30)
    assert "SPILLGATE_LEDGER_TOTAL_MAX_BYTES" not in given
    (volume,) = [one for one in pod(one(documents, "Deployment"))["volumes"] if one["name"] == "postgres"]
    assert volume["secret"]["secretName"] == "our-postgres"
    rules = one(documents, "NetworkPolicy")["spec"]["egress"]
    assert {"to": [{"ipBlock": {"cidr": "10.1.3.0/24"}}], "ports": [{"port": 5432}]} in rules
    with pytest.raises(ValueError, match="peers"):
        render_shared("postgres.existingSecret=our-postgres")


def test_another_release_shares_no_name_and_no_pod_with_the_first() -> None:
    documents = [each for each in yaml.safe_load_all(helm_template(CHART, "other")) if each]
    check(documents)
    assert all(each["metadata"]["name"].startswith("other") for each in documents)
    assert one(documents, "Service", "other")["spec"]["selector"]["app.kubernetes.io/instance"] == "other"


def test_a_chart_takes_the_sidecar_with_helm_as_the_readme_says(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "examples", tmp_path / "deploy" / "examples")
    shutil.copytree(SIDECAR, tmp_path / "deploy" / "sidecar")
    chart = tmp_path / "deploy" / "examples" / "agent"
    done = rendered.run("helm", "dependency", "update", "--skip-refresh", str(chart))
    assert done.returncode == 0, done.stderr
    text = helm_template(chart, "agent", values=SIDECAR_VALUES)
    (job,) = yaml.safe_load_all(text)
    check([job])
    (spillgate,) = pod(job)["initContainers"]
    given = environment(spillgate)
    assert given["SPILLGATE_STORAGE_MAX_BYTES"] == str(4 << 30)
    assert given["SPILLGATE_MAX_BYTES"] == "8192"
    assert pod(job)["securityContext"]["runAsUser"] == 1000
    assert pod(job)["volumes"][0]["emptyDir"] == {"sizeLimit": "8Gi"}
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert described["dependencies"] == yaml.safe_load(DEPENDENCY)["dependencies"]
    template = (chart / "templates" / "job.yaml").read_text()
    included = re.findall(r"^ *\{\{- include .+$", LINES, re.MULTILINE)
    assert len(included) == 3
    assert all(line in template for line in included)


WORKLOAD = """
apiVersion: apps/v1
kind: {kind}
metadata:
  name: agent
  labels: {{ spillgate-sidecar: "true" }}
spec:
  selector: {{ matchLabels: {{ app: agent }} }}
  {service}
  template:
    metadata: {{ labels: {{ app: agent }} }}
    spec:
      initContainers: [{{ name: first, image: "first:1" }}]
      containers: [{{ name: agent, image: "agent:1" }}]
      volumes: [{{ name: own, emptyDir: {{}} }}]
"""


@pytest.mark.parametrize(("kind", "service"), [("Deployment", ""), ("StatefulSet", "serviceName: agent")])
def test_the_component_puts_the_same_sidecar_beside_an_agent(tmp_path: Path, kind: str, service: str) -> None:
    shutil.copytree(DEPLOY / "kustomize", tmp_path / "kustomize")
    (tmp_path / "agent").mkdir()
    labelled = WORKLOAD.format(kind=kind, service=service)
    other = labelled.replace("name: agent\n", "name: other\n", 1).replace('spillgate-sidecar: "true"', "")
    (tmp_path / "agent" / "workload.yaml").write_text(f"{labelled}---{other}")
    overlay = {"resources": ["workload.yaml"], "components": ["../kustomize/sidecar"]}
    (tmp_path / "agent" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    done = rendered.run("kubectl", "kustomize", str(tmp_path / "agent"))
    assert done.returncode == 0, done.stderr
    documents = list(yaml.safe_load_all(done.stdout))
    check(documents)
    patched = pod(one(documents, kind, "agent"))
    (job,) = yaml.safe_load_all(render_agent())
    found = {each["name"]: each for each in patched["initContainers"]}
    assert found.keys() == {"spillgate", "first"}
    assert found["spillgate"] == pod(job)["initContainers"][0]
    assert {"own", *(each["name"] for each in pod(job)["volumes"])} == {
        each["name"] for each in patched["volumes"]
    }
    assert patched["securityContext"] == pod(job)["securityContext"]
    assert len(pod(one(documents, kind, "other"))["initContainers"]) == 1


def test_kustomize_builds_the_shared_shape() -> None:
    done = rendered.run("kubectl", "kustomize", str(DEPLOY))
    assert done.returncode == 0, done.stderr
    documents = list(yaml.safe_load_all(done.stdout))
    check(documents)
    assert {each["kind"] for each in documents} >= {"Deployment", "StatefulSet", "NetworkPolicy"}
