from pathlib import Path

import pytest

from content.formats.languages import Language, language_of
from content.source_text import SourceText

SOURCES = sorted((Path(__file__).parent / "sources").iterdir())


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("src/a.py", Language.PYTHON),
        ("C:\\work\\Main.CS", Language.CSHARP),
        ("a/b.test.tsx", Language.TSX),
        ("lib/x.d.ts", Language.TYPESCRIPT),
        ("include/x.h", Language.CPP),
        ("Rakefile", Language.RUBY),
        ("build.gradle.kts", Language.KOTLIN),
        ("notes.txt", None),
        ("py", None),
        ("a.py/", None),
        ("", None),
        (None, None),
    ],
)
def test_the_ending_of_a_path_tells(path: str | None, language: Language | None) -> None:
    assert language_of(path, b"") is language


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_text_of_a_whole_file_tells_the_same_as_its_name(path: Path) -> None:
    named = language_of(path.name, b"")
    expected = Language.TYPESCRIPT if named is Language.TSX else named
    assert language_of(None, path.read_bytes()) is expected


@pytest.mark.parametrize(
    ("first", "language"),
    [
        (b"#!/usr/bin/env python3\n", Language.PYTHON),
        (b"#!/bin/sh\n", Language.SHELL),
        (b"#! /usr/bin/env -S node --no-warnings\n", Language.JAVASCRIPT),
        (b"\xef\xbb\xbf<?php\n", Language.PHP),
        (b"     1\t#!/bin/bash\n     2\techo\n", Language.SHELL),
    ],
)
def test_the_first_line_tells(first: bytes, language: Language | None) -> None:
    assert language_of(None, SourceText(first).data) is language


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"A class of its own.\nThe type of thing that one would import from abroad.\n",
        b"# Title\n\nimport os\n",
        b"x = 1\n",
        b"local M = {}\n\nfunction M.open(path)\n  if path then\n    return 1\n  end\nend\n\nreturn M\n",
        b"defmodule Shop do\n  def open(path) do\n    path\n  end\n\n  defp close(_), do: :ok\nend\n",
        b"object Shop extends App {\n  def open(path: String): Int = {\n    val n = 1\n    n\n  }\n}\n",
        b"\x00" * 9000,
        b"import os\n" + b"use std::fmt;\n" * 2 + b"import sys\n",
    ],
)
def test_a_text_that_does_not_tell_has_no_language(text: bytes) -> None:
    assert language_of(None, text) is None
