"""Time to outline source files of 200 KB, by language, and hostile texts of 1 MiB, by processor time.

Samples of the tests that are repeated have a definition in every 60 bytes, five to ten times as many as real
source."""

import argparse
import re
import site
import statistics
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from bench.servers import ROOT
from content.formats.definitions import definitions
from content.formats.languages import Language, language_of

SIZE = 200_000
SAMPLES = ROOT / "tests" / "content" / "sources"
HEADER = re.compile(rb"^(?:package|import|use|using|require|#include|<\?php)\b.*\n", re.MULTILINE)
MEGABYTE = 1 << 20
HOSTILE = {
    "brackets": b"(",
    "generics": b"a<",
    "words": b"x ",
    "lines": b"a\n",
    "strings": b'""',
    "comments": b"/**/",
    "definitions": b"def a\n",
    "C functions": b"a a a a a a a a a(b)c\n",
    "calls": b"f(a,\n",
    "assignments": b"x = y = z = w.v = (\n",
    "random": bytes(range(1, 256)),
}


def folders() -> dict[Language, list[tuple[Path, str]]]:
    """Where source of others may lie on this machine."""
    installed = Path(next(iter(site.getsitepackages())))
    return {
        Language.PYTHON: [(Path(sysconfig.get_path("stdlib")), "*.py")],
        Language.JAVASCRIPT: [(Path("/usr/lib/node_modules"), "**/*.js"), (installed, "*/**/*.js")],
        Language.TYPESCRIPT: [(Path("/usr/lib/node_modules"), "**/*.d.ts")],
        Language.C: [(Path("/usr/include"), "*.h"), (installed, "*/**/*.c")],
        Language.CPP: [(Path("/usr/include/c++"), "*/bits/*.h")],
        Language.SHELL: [(Path("/usr/share/doc"), "**/*.sh")],
        Language.PHP: [(Path("/usr/share"), "**/*.php"), (Path("/usr/lib"), "*/platform/**/*.php")],
    }


def files(language: Language) -> Iterator[bytes]:
    for folder, pattern in folders().get(language, []):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and 2_000 < path.stat().st_size < SIZE:
                yield path.read_bytes()


def sources(language: Language, count: int) -> tuple[str, list[bytes]]:
    """`count` texts of 200 KB: whole files of others, one after the other; else our sample over and over."""
    made: list[bytes] = []
    text = b""
    for data in files(language):
        text += data + b"\n"
        if len(text) >= SIZE:
            made.append(text[: text.rfind(b"\n", 0, SIZE) + 1])
            text = b""
        if len(made) == count:
            break
    if made:
        return "found", made
    (sample,) = (path for path in SAMPLES.iterdir() if language_of(path.name, b"") is language)
    text = sample.read_bytes()
    return "made", [text + HEADER.sub(b"", text) * (SIZE // len(text) - 1)]


def measure(language: Language, rounds: int, bar: "tqdm[None]") -> list[str]:
    where, texts = sources(language, 5)
    spent = [min(processor_ms(text, language) for _ in range(rounds)) for text in texts]
    counts = [len(definitions(text, language, SIZE)) for text in texts]
    bar.update()
    return [
        language,
        f"{len(texts)} {where}",
        *(f"{value:,.0f}" for value in (statistics.median(map(len, texts)), statistics.median(counts))),
        *(f"{value:.1f}" for value in (statistics.median(spent), max(spent))),
    ]


def processor_ms(text: bytes, language: Language) -> float:
    start = time.thread_time()
    definitions(text, language)
    return (time.thread_time() - start) * 1000


def hostile(rounds: int) -> list[list[str]]:
    """The slowest language for each text."""
    rows = []
    for name, piece in HOSTILE.items():
        text = (piece * (MEGABYTE // len(piece) + 1))[:MEGABYTE]
        times = {one: min(processor_ms(text, one) for _ in range(rounds)) for one in Language}
        slowest = max(times, key=times.__getitem__)
        rows.append([name, slowest, f"{statistics.median(times.values()):.0f}", f"{times[slowest]:.0f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tqdm(total=len(Language), unit="text", desc="outline") as bar:
        rows = [measure(language, options.rounds, bar) for language in Language]
    print("\n| language | texts | bytes | definitions | ms, p50 | max |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\n| hostile text, 1 MiB | slowest language | ms p50 of languages | ms max |")
    print("|---|---|---|---|")
    for row in hostile(2):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
