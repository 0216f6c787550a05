"""Structure of source files of 200 KB, by language: processor time and findings; what hostile text costs.

Processor time is that of this thread and the parser's process together. What is made of our samples has a
definition in each 60 bytes, five to ten times as many as found source has."""

import argparse
import re
import site
import statistics
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from tqdm import tqdm

from bench.servers import ROOT
from content.code import definitions
from content.grammars import GRAMMARS
from content.language import Language, language_of

SIZE = 200_000
SAMPLES = ROOT / "tests" / "content" / "sources"
HEADER = re.compile(rb"^(?:package|import|use|using|require|#include|<\?php)\b.*\n", re.MULTILINE)
HOSTILE = {"brackets": b"(", "generics": b"a<", "words": b"x ", "random": b"", "definitions": b"def a\n"}


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
    definitions(texts[0][:1000], language)
    spent = [processor_ms(text, language, rounds) for text in texts]
    waited = [min(timed(text, language) for _ in range(rounds)) for text in texts]
    counts = [len(definitions(text, language, SIZE)) for text in texts]
    bar.update()
    return [
        language,
        f"{len(texts)} {where}",
        *(f"{value:,.0f}" for value in (statistics.median(map(len, texts)), statistics.median(counts))),
        *(f"{value:.1f}" for value in (statistics.median(spent), max(spent), statistics.median(waited))),
    ]


def processor_ms(text: bytes, language: Language, rounds: int) -> float:
    child = next(found for found in psutil.Process().children() if "parser_child.py" in found.cmdline()[-1])
    before, start = sum(child.cpu_times()[:2]), time.thread_time()
    for _ in range(rounds):
        definitions(text, language)
    return (sum(child.cpu_times()[:2]) - before + time.thread_time() - start) * 1000 / rounds


def timed(text: bytes, language: Language) -> float:
    start = time.perf_counter()
    definitions(text, language)
    return (time.perf_counter() - start) * 1000


def hostile(rounds: int) -> list[list[str]]:
    """The slowest language for each."""
    rows = []
    for name, piece in HOSTILE.items():
        text = (piece * SIZE)[:SIZE] or bytes(range(1, 256)) * (SIZE // 255)
        times = {language: min(timed(text, language) for _ in range(rounds)) for language in GRAMMARS}
        slowest = max(times, key=times.__getitem__)
        rows.append([name, slowest, f"{statistics.median(times.values()):.0f}", f"{times[slowest]:.0f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tqdm(total=len(GRAMMARS), unit="text", desc="outline") as bar:
        rows = [measure(language, options.rounds, bar) for language in GRAMMARS]
    print("\n| language | texts | bytes | definitions | processor ms, p50 | max | waited ms, p50 of best |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\n| hostile text, 200 KB | slowest language | ms p50 of languages | ms max |")
    print("|---|---|---|---|")
    for row in hostile(2):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
