"""Documents and the book over them: faults with their lines, precedence of globs and layers, reasons."""

import json

import pytest

from domain.budget import Window
from domain.errors import ConfigError, InvalidPolicy
from policies.book import PolicyBook
from policies.documents import from_json, from_toml

WINDOW = Window(1000, 0, 0)


def book(*layers: str, models: tuple[str, ...] = ()) -> PolicyBook:
    documents = [from_toml(text, f"layer {number}") for number, text in enumerate(layers)]
    return PolicyBook(documents, WINDOW, required=False, models=models)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nmax_bytes = 1\nmax_bytes = 2\n", "p.toml, line 3: max_bytes is set twice."),
        ("[tools.a]\n[tools.a]\n", "p.toml, line 2: Cannot declare ('tools', 'a') twice."),
        ("[defaults\n", "p.toml, line 1: Expected ']'"),
        ("a = [\n1,\n", "p.toml, line 2: Invalid value."),
        ("[defaults]\n\nmax_bytes = '1'\n", "line 3: defaults.max_bytes must be a whole number"),
        ("[defaults]\nmax_bytes = true\n", "line 2: defaults.max_bytes must be a whole number"),
        ("[defaults]\nmax_bytes = 1000001\n", "line 2: defaults.max_bytes must be less than or eq"),
        ("[defaults]\nkeep = 0\n", "line 2: defaults.keep must be true or false"),
        ("[tools]\n\n'web_*'.max_chars = -1\n", "line 3: tools.web_*.max_chars must be"),
        ("[tools]\nx = {keep = true, max_byte = 3}\n", "line 2: tools.x.max_byte is not a key; max_bytes is"),
        ('[tools."a.b"]\nbypass = 3\n', "line 2: tools.a.b.bypass must be true or false"),
        ("[tools]\nmax_bytes = 3\n", "line 2: tools.max_bytes must be a table of keys"),
        ("\ntools = 3\n", "line 2: tools must be a table of tables: [tools.NAME]"),
        ("[defaults]\ntool_names = ['x']\n", "tool_names must be a table of names, such as { shell ="),
        ("[defaults]\ntool_names = { grep = 'Grep' }\n", "tool_names.grep must be one of read_file"),
        (
            "[defaults]\ntool_names = { grep_content = 3 }\n",
            "tool_names.grep_content must be a text in quotes",
        ),
        ("[[tools.x]]\nkeep = true\n", "line 1: tools.x must be a table of keys"),
        ("[tools.x.y]\nkeep = true\n", "line 1: tools.x.y is not a key"),
        ("[tool.x]\nkeep = true\n", "line 1: tool is not a key; tools is"),
        ("profil = 'ouro'\n", "line 1: profil is not a key; profile is"),
        (
            "profile = 'our'\n",
            "line 1: profile must be one of default, ai-agent, ouro, claude-code, oxide-code; the near",
        ),
        ("profile = 3\n", "line 1: profile must be one of default, ai-agent, ouro, claude-code, oxide-code."),
        (
            "[defaults]\nprofile = 'ouro'\n",
            "line 2: defaults.profile belongs at the top, before every section",
        ),
        (
            "[defaults]\non_oversize = 'trunkate'\n",
            "line 2: defaults.on_oversize must be one of store, trunc",
        ),
        ("keep = true\n[defaults]\nkeep = false\n", "line 3: defaults.keep is also set outside a section"),
        (
            "[defaults]\nextract_models = [\n 'a',\n 3]\n",
            "line 2: defaults.extract_models must be a text in quotes",
        ),
        ("[tenants.a]\n\nmax_session = 1\n", "line 3: tenants.a.max_session is not a key; max_sessions is"),
        ("[tenants.a]\nmax_bytes = 1\n", "line 2: tenants.a.max_bytes is not a key"),
        ("[tenants.a]\nmax_sessions = -1\n", "line 2: tenants.a.max_sessions must be greater"),
        (
            "[tenants.a]\nrequests_per_second = '5'\n",
            "line 2: tenants.a.requests_per_second must be a valid number",
        ),
        ("[tenants.a]\nllm_usd_per_day = nan\n", "line 2: tenants.a.llm_usd_per_day must be a finite number"),
        ("[tenants]\nmax_sessions = 1\n", "line 2: tenants.max_sessions must be a table of keys"),
        ("[tenants.'a/b']\nmax_sessions = 1\n", "line 1: tenants.a/b must be the name of a tenant"),
        ("[tenant.a]\nmax_sessions = 1\n", "line 1: tenant is not a key; tenants is"),
        ("[models.m]\nencoding = 'o200k'\n", "line 2: models.m.encoding must be one of o200k_base"),
        ("x = " + "9" * 5000, "p.toml: a number is too large, or the nesting too deep"),
        ("a." * 5000 + "a = 1", "p.toml: a number is too large, or the nesting too deep"),
        ("x = " + "[" * 5000 + "]" * 5000, "p.toml: a number is too large, or the nesting too deep"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_toml(text, "p.toml")
    assert said in str(refused.value)


def test_every_fault_is_told_in_the_order_of_lines() -> None:
    text = "[tools.x]\nkeep = 1\n[defaults]\nmax_byte = 2\npreview = 'tail'\n"
    with pytest.raises(ConfigError) as refused:
        from_toml(text, "p.toml")
    told = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in told] == ["p.toml, line 2", "p.toml, line 4", "p.toml, line 5"]


@pytest.mark.parametrize("value", ["1e999", "NaN", "-1", "1e400", "9" * 400, "true", '"1"', "null", "[]"])
@pytest.mark.parametrize("key", ["max_bytes", "max_llm_cost_usd"])
def test_no_number_outside_its_bounds_is_taken(key: str, value: str) -> None:
    with pytest.raises(InvalidPolicy, match=f"^`policy.{key}`: must "):
        from_json(f'{{"{key}": {value}}}')


def test_of_very_many_faults_the_first_are_told() -> None:
    unknown = {f"key{number}": 1 for number in range(5000)}
    with pytest.raises(InvalidPolicy) as refused:
        from_json(json.dumps({"tools": {"t": unknown}, "defaults": unknown}))
    assert len(refused.value.detail) < 20_000


@pytest.mark.parametrize(
    ("weaker", "stronger", "tool"),
    [
        ("*", "read_*", "read_file"),
        ("read_*", "read_file", "read_file"),
        ("*e*", "read_?ile", "read_file"),
        ("read_*e", "read_?ile", "read_file"),
        ("*_file", "read_*", "read_file"),
        ("[a-z]*", "read*", "read_file"),
        ("[abcdefr]*", "re*", "read_file"),
    ],
)
def test_the_glob_that_says_more_wins_wherever_it_stands(weaker: str, stronger: str, tool: str) -> None:
    tables = [f'[tools."{weaker}"]\nmax_bytes = 1\nmax_chars = 1\n', f'[tools."{stronger}"]\nmax_bytes = 2\n']
    for text in ("".join(tables), "".join(reversed(tables))):
        policy = book(text).policy(tool)
        assert (policy.max_bytes, policy.max_chars) == (2, 1)


def test_of_two_globs_alike_the_later_wins() -> None:
    assert book('[tools."*a"]\nmax_bytes = 1\n[tools."*b*"]\nmax_bytes = 2\n').policy("ba").max_bytes == 1
    assert book('[tools."a?"]\nmax_bytes = 1\n[tools."a[b]"]\nmax_bytes = 2\n').policy("ab").max_bytes == 2


def test_a_reason_names_layer_table_and_line() -> None:
    rules = book(
        "[defaults]\nmax_bytes = 1\nmax_chars = 1\n",
        'preview = "head"\n[tools."read_*"]\nmax_bytes = 2\n[tools.read_file]\n\nmax_tokens = 3\n',
    )
    places = {one.key: (one.value, one.set_by) for one in rules.reasons("read_file")}
    assert places == {
        "max_bytes": (2, 'layer 1, [tools."read_*"], line 3'),
        "max_chars": (1, "layer 0, [defaults], line 3"),
        "max_tokens": (3, "layer 1, [tools.read_file], line 6"),
        "preview": ("head", "layer 1, line 1"),
    }


def test_a_reason_of_a_model_names_its_table() -> None:
    rules = book("[models.m]\ncontext_window = 5\n", "[models.m]\n\ncontext_window = 6\n")
    (reason,) = rules.reasons_of("models", "m")
    assert (reason.value, reason.set_by) == (6, "layer 1, [models.m], line 3")


def test_models_that_extraction_does_not_have_are_named_with_their_line() -> None:
    with pytest.raises(ConfigError, match=r"layer 0, \[tools\.t\], line 2: `extract_models` may name only"):
        book("[tools.t]\nextract_models = ['other']\n", models=("small",))
    with pytest.raises(InvalidPolicy, match="may name only"):
        book(models=("small",)).check_override('{"extract_models": ["other"]}')


def test_a_ceiling_of_the_operator_can_be_lowered_and_not_raised() -> None:
    rules = book("[defaults]\nmax_llm_calls = 10\n")
    assert rules.policy("t", '{"max_llm_calls": 3}').max_llm_calls == 3
    assert rules.policy("t", '{"max_llm_calls": 0}').max_llm_calls == 10
    assert rules.policy("t", '{"max_llm_calls": 30}').max_llm_calls == 10
    assert rules.policy("t", '{"max_llm_calls": 3}', '{"max_llm_calls": 5}').max_llm_calls == 3
