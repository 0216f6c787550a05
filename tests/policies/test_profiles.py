"""Profiles: a whole design each, with the numbers of the systems they come from."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.operations.policy_file import load_policies
from app.settings import Settings
from content.text import Preview
from domain.outcomes import OutcomeKind
from policies.book import PolicyBook
from policies.documents import Profile, from_toml
from policies.policy import Offer, Policy

ROOT = Path(__file__).resolve().parents[2]
DESIGN = {
    *("on_oversize", "max_bytes", "max_chars", "max_tokens", "head_chars", "keep", "preview", "stored_log"),
    *("preview_bytes", "max_rows", "max_line_chars", "reject_rows", "suggestion", "tool_names"),
    "offset_base",
    "offer",
}


@pytest.fixture
def operator(tmp_path: Any) -> Any:
    """The book over a policy file of this text, and these settings."""

    def made(text: str = "", **settings: Any) -> PolicyBook:
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return load_policies(Settings(policy_file=path, **settings))

    return made


def test_without_a_file_the_built_in_design_is_in_force() -> None:
    built_in = {"preview": Preview.SKETCH, "offer": (Offer.ONE,)}
    assert load_policies(Settings()).policy("any") == Policy(**built_in)


@pytest.mark.parametrize(
    ("profile", "tool", "keys"),
    [
        (
            "default",
            "any",
            {"on_oversize": OutcomeKind.STORE, "max_bytes": 12_288, "preview": Preview.SKETCH},
        ),
        ("ai-agent", "any", {"on_oversize": OutcomeKind.STORE, "max_bytes": 12_288, "preview": Preview.NONE}),
        ("ouro", "read_file", {"on_oversize": OutcomeKind.TRUNCATE, "max_chars": 3500, "head_chars": 2000}),
        ("ouro", "grep_content", {"max_chars": 3500}),
        ("ouro", "execute_shell", {"max_chars": 3500}),
        ("ouro", "glob_files", {"max_chars": 3500}),
        ("ouro", "get_weather", {"max_chars": 3500, "max_bytes": 0, "max_tokens": 0}),
        ("ouro", "web_fetch", {"max_chars": 5000, "on_oversize": OutcomeKind.TRUNCATE}),
        ("ouro", "mcp__browser__web_fetch", {"max_chars": 5000}),
        ("ouro", "WebFetch", {"max_chars": 5000}),
        ("ouro", "web_search", {"max_chars": 4000}),
        ("ouro", "WebSearch", {"max_chars": 4000}),
        ("claude-code", "any", {"on_oversize": OutcomeKind.REJECT, "max_tokens": 25_000, "max_bytes": 0}),
        ("oxide-code", "any", {"on_oversize": OutcomeKind.CAP, "max_bytes": 131_072, "max_rows": 0}),
        ("oxide-code", "read_file", {"max_bytes": 131_072, "max_rows": 2000, "max_line_chars": 500}),
        ("oxide-code", "Read", {"max_rows": 2000, "max_line_chars": 500}),
        ("oxide-code", "fs/grep_content", {"max_rows": 250, "max_line_chars": 500}),
        ("oxide-code", "Grep", {"max_rows": 250, "max_line_chars": 500}),
        ("oxide-code", "glob_files", {"max_rows": 100, "max_line_chars": 0}),
        ("oxide-code", "Glob", {"max_rows": 100}),
        ("oxide-code", "read", {"max_bytes": 131_072, "max_rows": 2000, "max_line_chars": 500}),
        ("oxide-code", "grep", {"max_rows": 250, "max_line_chars": 500}),
        ("oxide-code", "glob", {"max_rows": 100, "max_line_chars": 0}),
        ("oxide-code", "bash", {"max_bytes": 131_072, "max_rows": 0, "max_line_chars": 0}),
        ("ouro", "any", {"offset_base": 0}),
    ],
)
def test_a_profile_has_the_numbers_of_its_system(
    operator: Any, profile: str, tool: str, keys: dict[str, Any]
) -> None:
    policy = operator(f'profile = "{profile}"\n').policy(tool)
    assert {name: getattr(policy, name) for name in keys} == keys
    assert policy.keep


@pytest.mark.parametrize("profile", Profile)
def test_a_profile_is_a_whole_design_and_nothing_but_the_design(operator: Any, profile: str) -> None:
    places = {one.key: one.set_by for one in operator(f'profile = "{profile}"\n').reasons("read_file")}
    assert {name for name, place in places.items() if place.startswith(f"profile {profile},")} == DESIGN
    assert places.keys() - {"profile"} == {key.name for key in fields(Policy)}


def test_the_rest_of_the_document_changes_its_profile(operator: Any) -> None:
    rules = operator('profile = "ouro"\n[defaults]\nkeep = false\n[tools."web_*"]\nmax_chars = 9\n')
    assert rules.policy("web_fetch").max_chars == 9
    assert rules.policy("read_file").max_chars == 3500
    assert not rules.policy("read_file").keep


@pytest.mark.parametrize("profile", Profile)
def test_a_session_may_choose_a_profile_and_stands_on_nothing_else_of_the_design(
    operator: Any, profile: str
) -> None:
    lower = "\n".join(
        f'[tools."{glob}"]\nmax_bytes = 7\nmax_chars = 7\nmax_rows = 7' for glob in ("*", "read_file")
    )
    session = operator(lower).policy("read_file", f'{{"profile": "{profile}"}}')
    assert session == operator(f'profile = "{profile}"').policy("read_file")


def test_a_request_may_choose_a_profile_over_its_sessions() -> None:
    rules = load_policies(Settings())
    policy = rules.policy("t", '{"profile": "ouro"}', '{"profile": "oxide-code", "max_bytes": 99}')
    assert (policy.on_oversize, policy.max_bytes, policy.max_chars) == (OutcomeKind.CAP, 99, 0)


def test_what_the_operator_says_beside_the_design_outlives_a_chosen_profile(operator: Any) -> None:
    text = '[defaults]\nmax_llm_calls = 5\nmax_chunks = 7\n[tools."log_*"]\nbypass = true\n'
    rules = operator(text, bypass_tools=("raw",))
    for tool in ("log_tail", "raw"):
        assert rules.policy(tool, '{"profile": "claude-code"}').bypass
    policy = rules.policy("t", '{"profile": "ouro", "max_llm_calls": 6}')
    assert (policy.max_llm_calls, policy.max_chunks) == (5, 7)


def test_a_session_or_a_request_takes_no_bypass_of_the_operator_away(operator: Any) -> None:
    rules = operator('[tools."log_*"]\nbypass = true\n', bypass_tools=("raw",))
    lost = ('{"bypass": false}', '{"tools": {"*": {"bypass": false}}}', '{"defaults": {"bypass": false}}')
    for tool in ("log_tail", "raw"):
        for text in lost:
            assert rules.policy(tool, text).bypass
            assert rules.policy(tool, None, text).bypass
    assert rules.policy("t", '{"bypass": true}').bypass
    assert not rules.policy("t", '{"bypass": true}', '{"bypass": false}').bypass


def test_the_size_cap_setting_is_the_built_in_profiles(operator: Any) -> None:
    assert operator(max_bytes=99).policy("t").max_bytes == 99
    assert operator('profile = "ai-agent"\n', max_bytes=99).policy("t").max_bytes == 99
    assert operator('profile = "oxide-code"\n', max_bytes=99).policy("t").max_bytes == 131_072
    assert operator('profile = "ouro"\n', max_bytes=99).policy("t", '{"profile": "ai-agent"}').max_bytes == 99
    reasons = {one.key: one.set_by for one in operator(max_bytes=99).reasons("t")}
    assert reasons["max_bytes"] == "SPILLGATE_MAX_BYTES"


@pytest.mark.parametrize("page", ["policies.md", "settings.md"])
def test_every_policy_in_the_docs_can_be_honoured(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    documents = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert documents
    for document in documents:
        from_toml(document, page)
