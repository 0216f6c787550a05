"""Builds the site: `python docs/site/build.py VERSION` writes dist/site/VERSION
and, beside it, the list of versions.

The pages are those of docs/. A link to a file that is no page of the site becomes the file's name. Zensical,
in strict mode, refuses a link or an anchor that leads nowhere. `faults` finds what the built pages load from
other hosts, and links of theirs that lead nowhere."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
SOURCE, HTML, SITES = ROOT / ".site" / "source", ROOT / ".site" / "html", ROOT / "dist" / "site"
FROM_ELSEWHERE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "measured.md": "bench/README.md"}
"""Pages of the site that are files outside docs/."""
AFTER_THE_FIRST_PAGE = "\n## In an agent\n"
"""From this title on the README is for those who have a clone."""
ONLY_IN_THE_REPOSITORY = ("house.md",)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s:#]*)(#[^)\s]*)?\)")


def pages() -> dict[str, Path]:
    """The name of each page within the site, and its file."""
    docs = ROOT / "docs"
    own = {str(path.relative_to(docs)): path for path in sorted(docs.rglob("*.md"))}
    return {name: path for name, path in own.items() if name not in ONLY_IN_THE_REPOSITORY} | {
        name: ROOT / path for name, path in FROM_ELSEWHERE.items()
    }


def write_source() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", SOURCE / "images")
    names = {path: name for name, path in pages().items()}
    for name, path in pages().items():
        target = SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        shown = text.partition(AFTER_THE_FIRST_PAGE)[0] if name == "index.md" else text
        target.write_text(_LINK.sub(partial(_link, path, name, names), shown))


def _link(path: Path, name: str, names: dict[Path, str], link: re.Match[str]) -> str:
    text, file, anchor = link[1], link[2], link[3] or ""
    if not file or Path(file).suffix in (".png", ".svg"):
        return link[0]
    to = names.get((path.parent / file).resolve())
    if to is None:
        return text if "`" in text else f"`{text}`"
    # The first page has not all sections of the README.
    return f"[{text}]({'../' * name.count('/')}{to}{'' if to == 'index.md' else anchor})"


class Page(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.ids |= {named.get("id", ""), named.get("name", "")}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag != "a":
            self.loads += [named[name] for name in ("src", "href") if name in named]


def faults(place: Path) -> Iterator[str]:
    """Links that lead nowhere, and what is loaded from other hosts."""
    read = {path.resolve(): Page(path.read_text()) for path in place.rglob("*.html")}
    for path, page in read.items():
        for to in page.loads:
            if urlsplit(to).netloc:
                yield f"{path.name} loads {to}"
        for to in page.links:
            parts = urlsplit(to)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.name}: {to} is not there"
            elif parts.fragment and target in read and unquote(parts.fragment) not in read[target].ids:
                yield f"{path.name}: {to} has no such anchor"


def write_llms_txt() -> None:
    """llms.txt, and each page as Markdown beside its HTML."""
    lines = ["# Spillgate", "", "> An HTTP sidecar that bounds what the tools of AI agents return.", ""]
    for name in pages():
        text = (SOURCE / name).read_text()
        shutil.copy(SOURCE / name, HTML / name)
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        sentence = re.search(r"^[A-Z`\*][^|\n]*?(?:\.(?=\s)|$)", text.partition("\n\n")[2], re.MULTILINE)
        said = re.sub(r"\[([^\]]+)\]\([^)]*\)|\*\*", r"\1", sentence[0]) if sentence else ""
        lines.append(f"- [{title[1] if title else name}]({name}): {said}")
    (HTML / "llms.txt").write_text("\n".join(lines) + "\n")


def publish(version: str) -> None:
    """A folder for each version, the list by which pages offer the others, and a first page."""
    shutil.rmtree(SITES / version, ignore_errors=True)
    shutil.copytree(HTML, SITES / version)
    versions = sorted((path.name for path in SITES.iterdir() if path.is_dir()), key=_order, reverse=True)
    listed = [{"version": one, "title": one, "aliases": []} for one in versions]
    (SITES / "versions.json").write_text(json.dumps(listed) + "\n")
    first = f"{versions[0]}/index.html"
    refresh = f'<meta http-equiv="refresh" content="0; url={first}">'
    (SITES / "index.html").write_text(f'<!doctype html>{refresh}<a href="{first}">Spillgate</a>\n')


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main() -> int:
    write_source()
    zensical = str(Path(sys.executable).with_name("zensical"))
    command = [zensical, "build", "--clean", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603
        return 1
    write_llms_txt()
    found = list(faults(HTML))
    print("\n".join(found), file=sys.stderr)
    if found:
        return 1
    publish(sys.argv[1])
    print(f"{SITES / sys.argv[1] / 'index.html'}: {len(pages())} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
