"""Shell commands that do nothing but read one file, as agents without a tool for it read what they edit."""

import json
import re
import shlex
from typing import Any

_MOST_CHARS = 4096
_SUBSTITUTES = re.compile(r"[`\n]|\$\(|<\(")
_DROPS_ERRORS = re.compile(r"(?<=\s)2>\s*(?:/dev/null|&1)(?=\s|$)")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_NUMBER = re.compile(r"[-+]?[0-9]+")
_COUNT = re.compile(r"-[0-9]+|-[nc][-+]?[0-9]+|--(?:lines|bytes)=[-+]?[0-9]+|-q")
_PRINTS = re.compile(r"(?:(?:[0-9]+|\$)(?:,(?:\+?[0-9]+|\$))?[pq];?\s*)+")
_CAT = re.compile(r"-[AbeEnstTuv]+|--(?:number|number-nonblank|show-all|squeeze-blank)")
_NL = re.compile(r"-(?:b[atn]|w[0-9]+|v[0-9]+|s\S+|n(?:ln|rn|rz))|--body-numbering=[atn]")
_NL_VALUES = frozenset({"-b", "-w", "-v", "-s", "-n"})


def reads_one_file(arguments: str | None) -> bool:
    """True for the arguments of a tool that runs commands, as JSON, if the command only reads one file:
    `cat`, `head`, `tail`, `nl`, `sed -n` with line numbers, and pipes of them. A word of another command, a
    second file and whatever writes make it False."""
    command = _command_in(arguments)
    if command is None or len(command) > _MOST_CHARS or _SUBSTITUTES.search(command):
        return False
    lexer = shlex.shlex(_DROPS_ERRORS.sub("", command), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return False
    if words[:1] == ["cd"] and words[2:3] == ["&&"]:
        words = words[3:]
    first, *filters = _piped(words)
    return _files(first) == 1 and all(_files(one) == 0 for one in filters)


def _command_in(arguments: str | None) -> str | None:
    """The command line, also of a list such as ["bash", "-lc", "cat a"]."""
    try:
        given: Any = json.loads(arguments) if arguments and len(arguments) <= 2 * _MOST_CHARS else None
    except (ValueError, RecursionError):
        return None
    command = (given.get("command") or given.get("cmd")) if isinstance(given, dict) else None
    match command:
        case str():
            return command.strip()
        case [str(shell), "-c" | "-lc", str(line)] if shell.rpartition("/")[2] in _SHELLS:
            return line.strip()
    return None


def _piped(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _files(words: list[str]) -> int | None:
    """Returns how many files a command reads; None unless the command is known to do nothing else."""
    program, rest = (words[0].rpartition("/")[2], words[1:]) if words else ("", [])
    match program:
        case "cat":
            operands = [word for word in rest if not _CAT.fullmatch(word)]
        case "nl":
            operands = _without_values([word for word in rest if not _NL.fullmatch(word)], _NL_VALUES)
        case "head" | "tail":
            counted = _without_values(rest, frozenset({"-n", "-c"}), _NUMBER)
            operands = [word for word in counted if not _COUNT.fullmatch(word)]
        case "sed" if rest[:1] in (["-n"], ["-nE"], ["-En"]):
            script, *operands = rest[2:] if rest[1:2] == ["-e"] else rest[1:] or [""]
            if not _PRINTS.fullmatch(script):
                return None
        case _:
            return None
    operands = [word for word in operands if word != "--"]
    is_plain = all(re.match(r"[^-;&<>()|]", word) and not re.search(r"[*?{]", word) for word in operands)
    return len(operands) if is_plain else None


def _without_values(
    words: list[str], options: frozenset[str], value: re.Pattern[str] | None = None
) -> list[str]:
    """Returns the words without these options and their values."""
    kept: list[str] = []
    skips = False
    for at, word in enumerate(words):
        if skips:
            skips = False
        elif word in options and at + 1 < len(words) and (value is None or value.fullmatch(words[at + 1])):
            skips = True
        else:
            kept.append(word)
    return kept
