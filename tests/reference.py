"""What `make reference` writes: docs/reference, the outcomes of the dashboard, and the tool of the TypeScript
client. A test compares."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from app.answering.pass_on import _MOST_REFERENCES
from app.answering.tool_definitions import TOOLS, ToolFormat, definitions
from app.governing.body import HELD_BYTES
from app.http.api.body_caps import PLAIN_BODY_BYTES, PLAIN_BODY_VALUES
from app.http.api.openapi import described_fields
from app.http.edge.deadlines import Protocol
from app.http.edge.read_ahead import MOST_CHUNK_BYTES
from app.http.routes.stored import ANSWER_BYTES
from app.main import create_app
from app.operations import telemetry
from app.settings import PREFIX, Settings
from beside.hooks.answer import MAX_PAYLOAD_BYTES
from domain import __version__
from domain.errors import every_error
from domain.results import MAX_ARGUMENT_BYTES
from extraction.index_cache import MAX_INDEX_BYTES
from extraction.models.openai import MAX_REPLY_BYTES
from extraction.queries import MAX_DATA_BYTES
from extraction.query_child import EVALUATE_SECONDS, MEMORY_BYTES, READ_SECONDS
from extraction.retrieve.strategy import MOST_BYTES as MOST_SEARCHED_BYTES
from policies.outcomes import OUTCOMES
from policies.policy import Offer, Policy
from storage.objects import url as objects_url
from storage.postgres import url as postgres_url
from storage.redis import url as redis_url

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "reference"
OUTCOMES_SCRIPT = ROOT / "app" / "ui" / "outcomes.js"
TOOL_SCRIPT = ROOT / "clients" / "typescript" / "src" / "tool.js"

Schema = dict[str, Any]
FIELDS = described_fields()


def page(title: str, opening: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", opening, *parts]) + "\n"


def table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"| {head} |", "|---" * (head.count("|") + 1) + "|", *lines])


def code(value: object) -> str:
    return f"`{value}`"


def settings() -> str:
    rows = [
        (code(f"{PREFIX}{name.upper()}"), _default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    opening = (
        "Read from the environment at the start. What they are for: [settings](../settings.md). The "
        "service refuses an unknown name and an empty value; `spillgate check-config` shows what is "
        "in force, and what set it."
    )
    return page("Settings", opening, table("setting | default | meaning", rows))


def _default(value: object) -> str:
    return {None: "none", (): "empty"}.get(value, code(json.dumps(value).replace('"', "")))  # type: ignore[call-overload, no-any-return]


def policy_keys() -> str:
    folder = ROOT / "policies"
    built_in = tomllib.loads((folder / "default.toml").read_text())
    profile = tomllib.loads((folder / "profiles" / f"{built_in['profile']}.toml").read_text())
    values = {**profile["defaults"], **built_in["defaults"], "mode": built_in["mode"]}
    meanings = dict(_attribute_docstrings(Policy))
    *others, last = map(code, OUTCOMES)
    meanings["on_oversize"] = f"{meanings['on_oversize'][:-1]}: {', '.join(others)} or {last}."
    rows = [
        (code(one.name), code(json.dumps(values[one.name])), meanings[one.name]) for one in fields(Policy)
    ]
    opening = (
        "Keys of `[defaults]` and `[tools.NAME]` in the [policy file](../policies.md), and of "
        "`policy` in a session and a request, with the values of the built-in policy. Sections of the "
        "file: [settings](../settings.md#policy-file)."
    )
    keys = table("key | built in | meaning", rows)
    return page(
        "Policy keys", opening, keys, "## Profiles", *_profiles(folder / "profiles", built_in["profile"])
    )


def _profiles(folder: Path, built_in: str) -> Iterator[str]:
    """What each profile sets otherwise than the built-in one."""
    read = {path.stem: path.read_text() for path in sorted(folder.glob("*.toml"))}
    tables = {name: tomllib.loads(text) for name, text in read.items()}
    usual = tables[built_in]["defaults"]
    yield f"Above `{built_in}`, the built-in one, `profile = …` sets:"
    rows = []
    for name in read.keys() - {built_in}:
        differing = {key: value for key, value in tables[name]["defaults"].items() if value != usual[key]}
        alike = dict[str, list[str]]()
        for tool, keys in tables[name].get("tools", {}).items():
            alike.setdefault(_assigned(keys), []).append(tool)
        tools = [f"{', '.join(map(code, named))}: {said}" for said, named in alike.items()]
        comment = " ".join(re.findall(r"^# (.*)", read[name], re.MULTILINE)).partition(". ")[0]
        rows.append((code(name), f"{comment}.", _assigned(differing), "; ".join(tools)))
    yield table("profile | is | for every tool | for these tools", sorted(rows))


def _assigned(values: dict[str, object]) -> str:
    return ", ".join(code(f"{key} = {_toml(value)}") for key, value in values.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {json.dumps(one)}' for key, one in value.items())} }}"
    return json.dumps(value)


def _attribute_docstrings(kind: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    for one, after in pairwise(body):
        is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and is_described:
            yield one.target.id, " ".join(str(after.value.value).split())  # type: ignore[attr-defined]


def metrics() -> str:
    dropped = (code("spillgate_log_lines_dropped_total"), "", "Lines of the log that were not written.")
    rows = sorted([*_metrics_of_the_process(), dropped])
    for quota, (name, what) in telemetry._TENANT_SERIES.items():
        rows.append((code(f"spillgate_tenant_{name}"), "`tenant`", f"{what} Its quota: `{quota}`."))
        rows.append((code(f"spillgate_tenant_{name}_cap"), "`tenant`", f"Quota `{quota}`; 0 = none."))
    requests = "Requests with the keys of a tenant that has a quota of requests, refused ones too."
    rows.append((code("spillgate_tenant_requests_total"), "`tenant`", requests))
    opening = (
        "`GET /metrics`, in the text format of Prometheus; `process_*` besides: memory, CPU, open "
        "files. What to look at: [operations](../operations.md#metrics)."
    )
    return page("Metrics", opening, table("metric | labels | is", rows))


_SUFFIX = {"counter": "_total", "Info": "_info"}


def _metrics_of_the_process() -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(ast.parse(Path(telemetry.__file__).read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            continue
        if node.func.id not in ("counter", "gauge", "Times", "Info"):
            continue
        name, what = ast.literal_eval(node.args[0]), ast.literal_eval(node.args[1])
        is_labelled = len(node.args) > 2 and isinstance(node.args[2], ast.List)
        labels = ast.literal_eval(node.args[2]) if is_labelled else []
        labels += ["version"] if node.func.id == "Info" else []
        yield code(name + _SUFFIX.get(node.func.id, "")), ", ".join(map(code, labels)), what


def errors() -> str:
    kinds = sorted(every_error(), key=lambda kind: (kind.status, kind.code))
    rows = [
        (str(kind.status), code(kind.code), "yes" if kind.retryable else "no", kind.title, kind.advice)
        for kind in kinds
    ]
    opening = (
        "`application/problem+json` (RFC 9457). Programs go by `code`, people read `detail`, which "
        "repeats nothing that was sent. `retryable`: the same request may work later. `stored: false` "
        "on `POST /results`: nothing was kept, and you hold the only copy. More: [the "
        "API](../api.md#errors)."
    )
    return page("Errors", opening, table("status | code | retryable | title | what to do", rows))


def routes() -> str:
    document = create_app(Settings(storage_url="memory:")).openapi()
    sections = dict[str, list[str]]()
    everywhere = _errors_everywhere(document)
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            title = f"{method.upper()} {path}"
            text = _operation(document, title, operation, everywhere)
            sections.setdefault(operation["tags"][0], []).append(text)
            anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            rows.append((f"[{code(title)}](#{anchor})", operation["summary"]))
    opening = (
        "Every route, from [openapi.json](../../openapi/openapi.json), which a running service has at "
        "`/openapi.json` and `/docs`. How to use them, with answers: [the API](../api.md)."
    )
    shared = f"Besides, any of them may answer with: {', '.join(map(code, sorted(everywhere)))}."
    parts = [part for tag, texts in sections.items() for part in (f"## {tag.capitalize()}", *texts)]
    return page("Routes", opening, table("route | does", rows), shared, *parts)


def _operation(document: Schema, title: str, operation: Schema, everywhere: set[str]) -> str:
    parts = [f"### {title}", operation["summary"] + "."]
    if operation.get("description"):
        parts.append(" ".join(operation["description"].split()))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    named = _followed(document, body) if body else {}
    rows = [
        (code(name), "yes" if name in named.get("required", ()) else "", _kind(field), _meaning(field))
        for name, field in named.get("properties", {}).items()
    ]
    if rows:
        parts.append(table("field of the body | required | type | meaning", rows))
    parameters = [one for one in operation.get("parameters", ()) if not _repeats_the_body(one, named)]
    asked = [
        (code(one["name"]), one["in"], _kind(one["schema"]), _meaning({**one["schema"], **one}))
        for one in parameters
    ]
    if asked:
        parts.append(table("parameter | in | type | meaning", asked))
    told = list(_answer_fields(document, _json_of(operation["responses"].get("200", {})), "", set()))
    if told:
        parts.append(table("field of the answer | type | meaning", told))
    parts.append("Answers: " + ", ".join(_answers(operation, everywhere)) + ".")
    parts += _examples(operation)
    return "\n\n".join(parts)


def _examples(operation: Schema) -> Iterator[str]:
    """A request and its answer, as far as there are examples."""
    answers = {status: answer for status, answer in operation["responses"].items() if status < "300"}
    for name, place in {"request": operation.get("requestBody", {}), **answers}.items():
        example = place.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            written = json.dumps(example, ensure_ascii=False)
            yield f"{name.capitalize()}:\n\n```json\n{written}\n```"


def _json_of(answer: Schema) -> Schema:
    found: Schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _answer_fields(document: Schema, schema: Schema, path: str, seen: set[str]) -> Iterator[tuple[str, ...]]:
    """The fields that have a description, each shape once; those of inner objects behind their field."""
    for one in [schema, *schema.get("anyOf", ())]:
        inner = one.get("items", one)
        shape = inner.get("$ref", "").rpartition("/")[2]
        if not shape or shape in seen:
            continue
        seen.add(shape)
        for name, field in _followed(document, inner).get("properties", {}).items():
            if name in FIELDS.get(shape, ()):
                yield code(path + name), _kind(field), _meaning(field)
            yield from _answer_fields(document, field, f"{path}{name}.", seen)


def _repeats_the_body(parameter: Schema, body: Schema) -> bool:
    return parameter["in"] == "query" and parameter["name"] in body.get("properties", {})


def _codes(answer: Schema) -> list[str]:
    name = answer.get("$ref", "").rpartition("/")[2]
    return name.split(".") if name else []


def _errors_everywhere(document: Schema) -> set[str]:
    """Codes of all operations that need a key where keys are set."""
    operations = [
        one for each in document["paths"].values() for one in each.values() if "security" not in one
    ]
    codes = [{code for answer in one["responses"].values() for code in _codes(answer)} for one in operations]
    return set.intersection(*codes)


def _answers(operation: Schema, everywhere: set[str]) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        own = [one for one in _codes(answer) if one not in everywhere]
        if own or not _codes(answer):
            yield f"{status} {', '.join(map(code, own))}".strip()


def _followed(document: Schema, schema: Schema) -> Schema:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    kinds = schema.get("type", "any")
    return str(kinds if isinstance(kinds, str) else kinds[0])


def _meaning(schema: Schema) -> str:
    text = str(schema.get("description", ""))
    default = schema.get("default", schema.get("schema", {}).get("default"))
    shown = "" if default in (None, [], "", False) else f" Default: `{default}`."
    return text + shown


_PACKAGES = {
    "Coding agents": {
        "tests/interop/agents/package-lock.json": {
            "@anthropic-ai/claude-code": "Claude Code",
            "@openai/codex": "Codex",
            "@github/copilot": "Copilot CLI",
            "@google/gemini-cli": "Gemini CLI (as an MCP client)",
            "opencode-ai": "OpenCode",
        }
    },
    "MCP": {
        "tests/interop/mcp/requirements.lock": {
            "mcp": "MCP SDK for Python, client and server",
            "mcp-server-git": "server for git, behind the relay",
            "mcp-server-time": "server for times, behind the relay",
        }
    },
    "Proxies": {"tests/interop/requirements.lock": {"litellm": "LiteLLM"}},
    "Frameworks in Python": {
        "clients/python/locks/adapters.lock": {
            "langchain": "LangChain",
            "langgraph": "LangGraph",
            "deepagents": "Deep Agents",
            "openai-agents": "OpenAI Agents",
            "pydantic-ai-slim": "Pydantic AI",
            "strands-agents": "Strands",
            "google-adk": "Google ADK",
            "agent-framework-core": "Microsoft Agent Framework",
            "llama-index-core": "LlamaIndex (recipe)",
            "haystack-ai": "Haystack (recipe)",
            "smolagents": "smolagents (recipe)",
        },
        "clients/python/locks/crewai.lock": {"crewai": "CrewAI (recipe)"},
    },
    "Frameworks in JavaScript": {
        "clients/typescript/package-lock.json": {
            "ai": "AI SDK",
            "@openai/agents": "OpenAI Agents JS",
            "langchain": "LangChain JS",
            "@mastra/core": "Mastra",
        }
    },
    "Generated clients": {
        "tests/generated/requirements.lock": {
            "openapi-python-client": "openapi-python-client",
            "openapi-generator-cli": "OpenAPI Generator (Go)",
        },
        "tests/generated/package-lock.json": {"openapi-typescript": "openapi-typescript"},
    },
}
_RUN_BY = {
    "Coding agents": "make interop",
    "MCP": "make interop",
    "Proxies": "make interop",
    "Frameworks in Python": "make adapters",
    "Frameworks in JavaScript": "make adapters-js",
    "Generated clients": "make clients-generated",
}


def compatibility() -> str:
    rows = [
        (what, code(package), _locked(lock, package), code(_RUN_BY[group]))
        for group, locks in _PACKAGES.items()
        for lock, packages in locks.items()
        for package, what in packages.items()
    ]
    opening = (
        f"What Spillgate {__version__} is tested with: versions are those of the lock files. Other "
        "versions may work. What each cannot do: [coding agents](../hooks.md#what-was-run), "
        "[frameworks](../clients.md), [MCP clients](../mcp.md)."
    )
    return page("Compatibility", opening, table("client | package | version | tested by", rows))


def _locked(lock: str, package: str) -> str:
    text = (ROOT / lock).read_text()
    if lock.endswith(".json"):
        return str(json.loads(text)["packages"][f"node_modules/{package}"]["version"])
    found = re.search(rf"^{re.escape(package)}==([^\s;\\]+)", text, re.MULTILINE)
    assert found, f"{lock} has no {package}"
    return found[1]


_CAPS = (
    ("a body of a route that carries no results", PLAIN_BODY_BYTES, "413 `body_too_large`"),
    ("`tool_arguments`", MAX_ARGUMENT_BYTES, "422 `invalid_field`; hooks and doors leave them out"),
    ("a text in memory", HELD_BYTES, "the rest is streamed to the store"),
    ("an answer of `/lines`, `/grep`", ANSWER_BYTES, "the answer says where to go on"),
    ("a chunk of `/content`", MOST_CHUNK_BYTES, "the next chunk"),
    ("data of a query", MAX_DATA_BYTES, "422 `not_queryable`"),
    ("memory of the process of a query", MEMORY_BYTES, "422 `query_too_costly`"),
    (
        "data that `retrieve` searches",
        MOST_SEARCHED_BYTES,
        "the question falls back; `ranges` of it can be asked about",
    ),
    ("indexes kept for the next question", MAX_INDEX_BYTES, "the oldest are dropped"),
    ("a reply of a model's backend", MAX_REPLY_BYTES, "the call failed; extraction falls back"),
    ("input of `spillgate hook`", MAX_PAYLOAD_BYTES, "the result passes"),
    ("the headers of a request", Protocol.MAX_HEAD, "431"),
    ("the target of a request: path and query", Protocol.MAX_TARGET, "431"),
)
_COUNTS = (
    ("JSON values in a body of a route that carries no results", PLAIN_BODY_VALUES, "413 `body_too_large`"),
    ("stored results in the arguments of a call", _MOST_REFERENCES, "a `refusal`"),
)
_TIMES = (
    ("request headers", Protocol.HEAD_SECONDS, "408 `header_timeout`"),
    (
        f"a body that brings less than {Protocol.BODY_PROGRESS >> 10} KiB, or less than "
        f"{Protocol.HOLDER_PROGRESS >> 10} KiB while it holds bytes of the common pool",
        Protocol.BODY_SECONDS,
        "408 `body_timeout`",
    ),
    ("processor time to read the data of a query", READ_SECONDS, "422 `query_too_costly`"),
    ("processor time of the query itself", EVALUATE_SECONDS, "422 `query_too_costly`"),
    ("a reader that reads nothing", Protocol.READER_SECONDS, "the connection is closed"),
)


def caps() -> str:
    rows = [
        (what, f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB", past)
        for what, size, past in _CAPS
    ]
    opening = (
        "Constants of the code, which cannot be set. Caps that can be are [settings](settings.md) and "
        "[policy keys](policy-keys.md). What they add up to: [deploying](../deploy.md#memory-at-the-worst)."
    )
    rows += [(what, f"{count:,}", past) for what, count, past in _COUNTS]
    rows += [(what, f"{seconds:.0f} s", past) for what, seconds, past in _TIMES]
    return page("Caps", opening, table("cap | is | past it", rows))


def urls() -> str:
    """The openings of the modules that read the URLs."""
    opening = (
        "What `SPILLGATE_STORAGE_URL` and `SPILLGATE_LEDGER_URL` may be, besides `memory:`, `disk:///path` "
        "and `sqlite:///path`. Which to take: [stores](../backends.md)."
    )
    parts = []
    for title, module in (
        ("Redis", redis_url),
        ("PostgreSQL", postgres_url),
        ("Object stores", objects_url),
    ):
        _, forms, said, options = inspect.cleandoc(module.__doc__ or "").split("\n\n")
        rows = [tuple(re.split("  +", line, maxsplit=1)) for line in options.splitlines()]
        described = table("option | is", [(code(name), meaning) for name, meaning in rows])
        parts.append(f"## {title}\n\n```\n{forms}\n```\n\n{' '.join(said.split())}\n\n{described}")
    return page("URLs of stores", opening, *parts)


def alerts() -> str:
    """A row for the alerts that have the same annotations."""
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    alike = dict[tuple[str, ...], list[str]]()
    for rule in group["rules"]:
        said = tuple(_linked(rule["annotations"].get(key, "")) for key in ("run_first", "causes", "do_not"))
        is_critical = rule["labels"]["severity"] == "critical"
        alike.setdefault(said, []).append(code(rule["alert"]) + " (critical)" * is_critical)
    opening = (
        "[deploy/alerts.yaml](../../deploy/alerts.yaml), for Prometheus. `LOG` is where stderr goes, "
        "`ADDRESS` that of the instance in the alert. How to install them: [deploying](../deploy.md#metrics)."
    )
    rows = [(", ".join(names), *said) for said, names in alike.items()]
    return page("Alerts", opening, table("alert | run first | likely causes | do not", rows))


def _linked(text: str) -> str:
    return re.sub(r"docs/([a-z]+)\.md(#[a-z-]+)?", r"[\1](../\1.md\2)", text)


def outcomes() -> str:
    """The script that names the outcomes for the dashboard."""
    return f"// Written by `make reference`.\n\nexport const OUTCOMES = {json.dumps([*OUTCOMES])};\n"


def tool() -> str:
    (defined,) = definitions([TOOLS[Offer.ONE]], (), ToolFormat.MCP)
    shown = {key: defined[key] for key in ("name", "description", "inputSchema")}
    return (
        "/** The tool that a service offers unless its policy names others, as MCP has it. Written by "
        "`make reference`.\n * @type {Record<string, any>} */\n"
        f"export const TOOL = {json.dumps(shown, indent=2, ensure_ascii=False)};\n"
    )


PAGES = {
    "routes": routes,
    "settings": settings,
    "urls": urls,
    "policy-keys": policy_keys,
    "metrics": metrics,
    "errors": errors,
    "alerts": alerts,
    "caps": caps,
    "compatibility": compatibility,
}

if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (PLACE / f"{name}.md").write_text(made())
    OUTCOMES_SCRIPT.write_text(outcomes())
    TOOL_SCRIPT.write_text(tool())
