"""Twenty-five ordinary texts, what they are, and how tools wrap and number them."""

import json
from collections.abc import Callable

ROWS = [{"id": n, "city": "Rome", "total": n * 3} for n in range(60)]
NESTED = [{"id": n, "billing": {"email": f"a{n}@b.c", "vat": n}} for n in range(60)]
LETTERS = {"A": "id", "B": "city", "C": "total"}
CELLS = [
    *({"address": f"{letter}1", "value": name} for letter, name in LETTERS.items()),
    *(
        {"address": f"{at}{row['id'] + 2}", "value": row[name]}
        for row in ROWS
        for at, name in LETTERS.items()
    ),
]
HEADED = ["id", "city", "total"]
LEVELS = {41: "ERROR"} | dict.fromkeys(range(0, 120, 9), "WARNING")
STAMPED = "".join(
    f"2026-11-23 17:{n // 60:02}:{n % 60:02} {LEVELS.get(n, 'INFO')} x {n}\n" for n in range(120)
)
COMMENTS = "".join(f"# Part {n} of the licence, which says nothing of what is below.\n" for n in range(30))
SHAPES: dict[str, tuple[str, str, int]] = {
    # What `extent` begins with; the rows of a query, 0 where it is refused.
    "JSON array": (json.dumps(ROWS, indent=1), "JSON, 60 objects with keys id, city, total", 60),
    "JSON on one line": (json.dumps(ROWS), "JSON, 60 objects with keys id, city, total", 60),
    "JSON rows on lines": (
        "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]",
        "JSON, 60 objects with keys id, city, total",
        60,
    ),
    "nested": (json.dumps(NESTED), "JSON, 60 objects with keys id, billing.email, billing.vat", 60),
    "cells": (json.dumps(CELLS), "JSON, 60 rows, 3 columns: id, city, total", 60),
    "arrays of arrays": (
        json.dumps([HEADED, *(list(row.values()) for row in ROWS)]),
        "JSON, 60 rows, 3 columns: id, city, total",
        60,
    ),
    "object of arrays": (
        json.dumps({name: [row[name] for row in ROWS] for name in HEADED}),
        "JSON, 60 rows, 3 columns: id, city, total",
        60,
    ),
    "JSON lines": (
        "".join(json.dumps(row) + "\n" for row in ROWS),
        "JSON lines, 60 records with keys id, city, total",
        60,
    ),
    "JSON lines and text": (
        "".join(json.dumps(row) + "\n" + "a word\n" * (row["id"] % 20 == 9) for row in ROWS),
        "JSON lines, 60 records with keys id, city, total",
        60,
    ),
    "documents": (
        "".join(json.dumps(row, indent=2) + "\n" for row in ROWS),
        "JSON lines, 60 records with keys id, city, total",
        60,
    ),
    "CSV": (
        "id,city,total\n" + "".join(f"{n},Rome,{n * 3}\n" for n in range(60)),
        "CSV, 60 rows, 3 columns: id, city, total",
        60,
    ),
    "CSV by semicolons": (
        "name, first;id;price, net\n" + "".join(f"Ann;{n};{n * 3}\n" for n in range(60)),
        'CSV, 60 rows, 3 columns: "name, first", id, "price, net"',
        60,
    ),
    "TSV": (
        "id\tcity\ttotal\n" + "".join(f"{n}\tRome\t{n * 3}\n" for n in range(60)),
        "TSV, 60 rows, 3 columns: id, city, total",
        60,
    ),
    "bars": (
        "| id | city | total |\n|---|---|---|\n" + "".join(f"| {n} | Rome | {n * 3} |\n" for n in range(60)),
        "table, 60 rows, 3 columns: id, city, total",
        60,
    ),
    "columns": (
        "id    CITY       LAST TOTAL\n" + "".join(f"{n:<6}Rome       {n * 3}\n" for n in range(60)),
        "table, 60 rows, 3 columns: id, CITY, LAST TOTAL",
        60,
    ),
    "log": (
        STAMPED,
        "log, 1 ERROR, 14 WARNING, 105 INFO, from 2026-11-23 17:00:00 to 2026-11-23 17:01:59 (0:01:59)",
        0,
    ),
    "syslog": (
        "".join(f"Nov 23 17:18:{n % 60:02d} host app[1]: x y\n" for n in range(60)),
        "log, from Nov 23 17:18:00 to Nov 23 17:18:59 (0:00:59)",
        0,
    ),
    "Markdown": ("# Title\n\nprose\n\n## A\n\n- b\n\n## C\n\nmore\n\n" * 12, "Markdown, 36 headings", 0),
    "HTML": (
        "<!doctype html>\n<html><head><title>T</title></head><body>\n" + "<p>x</p>\n" * 90 + "</html>\n",
        "HTML page",
        0,
    ),
    "XML": ('<?xml version="1.0"?>\n<root>\n' + "<a>1</a>\n" * 90 + "</root>\n", "XML, root element root", 0),
    "Python": (
        "import os\n\n\ndef f(a):\n    return a\n\n\nclass A:\n    def g(self):\n        return 1\n\n\n" * 9,
        "Python source, 9 classes, 18 other definitions",
        0,
    ),
    "Python under comments": (
        COMMENTS + "import os\nimport re\n\n\ndef f(a):\n    return a\n" * 4,
        "Python source, 4 definitions",
        0,
    ),
    "diff": (
        "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2\n" + " b\n" * 200,
        "diff, 1 file",
        0,
    ),
    "paths": ("".join(f"src/app/module_{n}/main.py\n" for n in range(60)), "list of paths", 0),
    "text": ("The train is not in the city, and it is late.\n" * 30, "plain text", 0),
}
Wrap = Callable[[str], str]


def lines(form: str) -> Wrap:
    return lambda text: "".join(
        form.format(number, line) + "\n" for number, line in enumerate(text.rstrip("\n").split("\n"), 1)
    )


WRAPS: dict[str, Wrap] = {
    "plain": lambda text: text,
    "cat -n": lines("{:6d}\t{}"),
    "arrow": lines("{:6d}→{}"),
    "bar": lines("{:05d}| {}"),
    "colon": lines("{}: {}"),
    "file": lambda text: f"<file>\n{lines('{:05d}| {}')(text)}\n(End of file - total 60 lines)\n</file>",
    "block": lambda text: json.dumps({"type": "text", "text": text}),
    "blocks": lambda text: json.dumps([{"type": "text", "text": text}], ensure_ascii=False, indent=2),
    "content": lambda text: json.dumps({"content": [{"type": "text", "text": text}], "isError": False}),
    "colours": lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.rstrip("\n").split("\n")),
}
