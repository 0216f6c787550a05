"""Commands that do nothing but read one file, and those that only look like it."""

import json

import pytest

from domain.file_reads import reads_one_file

READS = [
    "cat a.py",
    "cat -n 'my file.py'",
    "/bin/cat 'app/[id]/page.tsx'",
    "cat -- a.py 2>/dev/null",
    "cd sub && cat a.py",
    "sed -n '1,200p' src/main.rs",
    "sed -n -e '1,5p;9p' a.py",
    "sed -n '$p' a.py",
    "nl -ba a.py | sed -n '10,20p'",
    "nl -b a a.py",
    "head -50 a.py",
    "head -n 50 a.py",
    "tail -n +3 a.py | head -c 500",
]
OTHERS = [
    "",
    "cat",
    "cat a.py b.py",
    "cat *.py",
    "cat {a,b}.py",
    "cat a.py > b.py",
    "cat <a.py",
    "cat a.py; rm a.py",
    "cat a.py && make",
    "cat a.py &",
    "cat a.py\nmake",
    "cat $(ls)",
    "cat `ls`",
    "cat a.py | grep tulip",
    "cat a.py | sh",
    "cat a.py | cat b.py",
    "cat a.py | tee b.py",
    "cat 'unclosed",
    "(cat a.py)",
    "head -n 5 a.py b.py",
    "tail -f log",
    "sed '1,5p' a.py",
    "sed -i 1d a.py",
    "sed -n '/tulip/p' a.py",
    "sed -n '1,5w b.py' a.py",
    "sed -n 1e a.py",
    "sed -n 1,5p",
    "grep tulip a.py",
]


@pytest.mark.parametrize("command", READS)
def test_it_reads_one_file(command: str) -> None:
    for arguments in ({"command": command}, {"cmd": command}, {"command": ["bash", "-lc", command]}):
        assert reads_one_file(json.dumps(arguments))


@pytest.mark.parametrize("command", OTHERS)
def test_it_does_more_or_less(command: str) -> None:
    assert not reads_one_file(json.dumps({"command": command}))


@pytest.mark.parametrize(
    "arguments", [None, "", "cat a.py", "[]", '{"command": 1}', "[" * 5000, '{"command": []}']
)
def test_other_arguments_read_nothing(arguments: str | None) -> None:
    assert not reads_one_file(arguments)
