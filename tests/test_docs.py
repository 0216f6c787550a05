"""The links of the documents lead somewhere, and the site has every page; `make site` checks the pages."""

import importlib.util
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "clients/*/*.md", "integrations/**/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")

_spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "site" / "build.py")
assert _spec
assert _spec.loader
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


def prose(path: Path) -> str:
    """Without blocks and spans of code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda span: "" if "](" in span[0] else span[0], text)


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def test_each_link_between_documents_leads_to_a_file_and_a_section() -> None:
    wrong = []
    for path in DOCUMENTS:
        for link in LINK.findall(prose(path)):
            if "://" in link or link.startswith("mailto:"):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            is_wrong = not target.exists() or (
                anchor and target.suffix == ".md" and anchor not in anchors(target)
            )
            wrong += [f"{path.relative_to(ROOT)}: {link}"] if is_wrong else []
    assert wrong == []


TITLES = {
    "What has a handle is there.",
    "Parallel results share one window.",
    "Retries are safe.",
    "Plain files.",
}
"""Each says in short what the sentences after it say."""


def test_each_sentence_that_one_can_rely_on_has_its_test() -> None:
    section = (ROOT / "README.md").read_text().partition("## What you can rely on\n")[2].partition("\n## ")[0]
    bullets = [" ".join(one.split()) for one in section.split("\n- ")[1:]]
    told = {one for bullet in bullets for one in re.findall(r"\S.*?(?:\.\*\*|\.(?= |$))", bullet)}
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Claims\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "::" in line]
    assert {sentence for sentence, _ in rows} == {one for one in told if one.strip("*") not in TITLES}
    for _, tests in rows:
        for path, name in re.findall(r"`([^`:]+)::(\w+)`", tests):
            assert f"def {name}(" in (ROOT / path).read_text(), name


def test_the_site_leads_to_every_page() -> None:
    def named(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [
            one for below in (entry if isinstance(entry, list) else entry.values()) for one in named(below)
        ]  # type: ignore[attr-defined]

    listed = named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(build.pages())


def test_the_check_of_the_site_finds_what_leads_nowhere_and_what_is_loaded_from_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">b</a> <a href="#here">here</a>')
    (tmp_path / "b.html").write_text('<p id="there"><img src="a.png">')
    assert list(build.faults(tmp_path)) == []
    (tmp_path / "b.html").write_text('<a href="c.html">c</a><script src="https://cdn.example/x.js"></script>')
    assert sorted(build.faults(tmp_path)) == [
        "a.html: b.html#there has no such anchor",
        "b.html loads https://cdn.example/x.js",
        "b.html: c.html is not there",
    ]
