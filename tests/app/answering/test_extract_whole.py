"""POST /extract with no model: records whole, rows under their header, sentences with neighbours."""

import json

import httpx
import pytest

from tests.app.answering.test_extract_retrieve import ask, keep

pytestmark = pytest.mark.anyio

NOTE = "a long remark about nothing of note " * 9
FILES = {
    "type": "directory",
    "name": "repo",
    "children": [
        {
            "type": "directory",
            "name": folder,
            "children": [
                {
                    "type": "file",
                    "name": f"{name}.c",
                    "size": n * 31,
                    "mode": "0644",
                    "owner": {"login": f"{folder}{n}"},
                }
                for n, name in enumerate(("main", "init", "loop", "free", "list", "heap", "tree", "hash"))
            ],
        }
        for folder in ("src", "lib", "test", "tools", "docs", "bench", "extra", "third", *"abcdefghijkl")
    ],
}
PEOPLE = [
    {"born": 1900 + n, "remarks": [NOTE, NOTE], "person": {"first": f"Name{n}", "city": f"Town{n}"}, "end": n}
    for n in range(90)
]
GRID = [["Name", "City", "Amount"], *([f"Name {n}", f"Town {n}", f"{n * 3}"] for n in range(600))]
PODS = "NAME        READY   STATUS      RESTARTS\n" + "".join(
    f"web-{n:<6}  1/1     Running     {n}\n" for n in range(600)
)
LEAD = "Some words about the cluster.\n\n"
CSV = "id,city,amount\n" + "".join(f"{n},town {n},{n * 3}\n" for n in range(900))
SHEET = "".join(
    f"{column}{row}: {column.lower()} of row {row}\n" for row in range(1, 300) for column in "ABCD"
)
LISTING = "".join(
    f"{n}: eth{n}: <BROADCAST,UP> mtu {1400 + n}\n    link/ether 02:42:ac:11:00:{n % 100:02}\n"
    f"    inet 10.0.{n}.1/24 scope global{' secondary' * (n % 7)}\n    valid_lft forever\n"
    "    RX packets and bytes and errors, dropped and missed\n    TX packets and bytes and errors, dropped\n"
    for n in range(200)
)

SHOWN = [
    (
        "the names of an array's elements are its path",
        json.dumps(FILES, indent=2),
        "free.c lib3",
        ['$.children["lib"].children["', '"login": "lib3"\n          }\n        }'],
    ),
    (
        "a record around a field",
        json.dumps(PEOPLE),
        "Which year was Name77 of Town77 born in?",
        ['"born": 1977, '],
    ),
    (
        "a row of a list of rows",
        json.dumps({"values": GRID}, indent=1),
        "Name 431",
        ['"Name 431",\n   "Town 431",\n   "1293"\n  ]', 'columns: "Name", "City", "Amount"'],
    ),
    (
        "cells of a sheet in lines",
        SHEET,
        '"C257"',
        ["A257: a of row 257\nB257: b of row 257\nC257: ", "\nD257: "],
    ),
    (
        "a header after other lines",
        LEAD + PODS,
        "web-321",
        [
            " under line 3",
            "\nNAME        READY   STATUS      RESTARTS\n",
            "web-321     1/1     Running     321\n",
        ],
    ),
    ("CSV", CSV, '"town 654"', ["under line 1]\nid,city,amount\n", "\n654,town 654,1962\n"]),
    (
        "lines below another",
        LISTING,
        "inet 10.0.123.1/24",
        ["123: eth123: <BROADCAST,UP> mtu 1523\n    link/ether 02:42:ac:11:00:23\n    inet 10.0.123.1/24 "],
    ),
]


async def test_what_belongs_to_a_passage_is_shown_with_it(client: httpx.AsyncClient) -> None:
    for text, extract, expected in [one[1:] for one in SHOWN]:
        body = (await ask(client, await keep(client, text), extract))["body"]
        best = body[: body.index("\n[", body.index("[line") + 1) + 1]
        for one in expected:
            assert one in best, body
        assert len(body.encode()) <= 2560


BUTTONS = "\n".join(
    f"[{name}](https://{name.lower()}.com/share?u=x)" for name in ("Facebook", "Twitter", "LinkedIn")
)
WORDS = "<p>nothing else is said here at all, by anybody, at any time</p>\n"
SAID = "The ticket has a price of 5 euros, to be paid by mail."
RULES = "".join(f".ticket-{n} {{ color: red; --price-of: {n}px; content: mail }}\n" for n in range(40))
UNSEEN = [
    (
        "a style sheet of a page",
        f"<html><body><style>{RULES}</style>{WORDS * 300}<p>{SAID}</p></body>",
        "color: red",
    ),
    ("rules in the text of a page", f"# Tickets\n\n{RULES}\n{WORDS * 300}\n{SAID}\n", "color: red"),
    (
        "a script of a page within JSON",
        json.dumps(
            {
                "url": "x",
                "html": f"{WORDS * 200}<script>"
                f"{'var price = ticket; ' * 90}</script>{WORDS * 9}<p>{SAID}</p>",
            }
        ),
        "var price",
    ),
    (
        "buttons of a page",
        f"# Tickets\n\n{f'Share this ticket by mail: {BUTTONS}' * 9}\n\n{WORDS * 300}\n{SAID}",
        "](http",
    ),
    (
        "an image within JSON",
        json.dumps(
            [{"image": "ticket/price/mail/" + "QUJD" * 900}, *([{"text": WORDS}] * 200), {"text": SAID}]
        ),
        "QUJDQUJD",
    ),
]


async def test_what_nobody_reads_on_a_page_is_not_shown(client: httpx.AsyncClient) -> None:
    for text, unseen in [one[1:] for one in UNSEEN]:
        body = (await ask(client, await keep(client, text), "the price of the ticket by mail"))["body"]
        first = body[body.index("[line") :].partition("\n[line")[0]
        assert SAID in first
        # A passage of JSON may hold the end of a script beside other text.
        assert body.count(unseen) <= (5 if unseen == "var price" else 0)


async def test_a_style_sheet_itself_is_read(client: httpx.AsyncClient) -> None:
    sheet = RULES * 9 + "/* " + "the color of a ticket is not said in here, but above\n" * 12 + "*/\n"
    handle = await keep(client, sheet, tool_name="cat")
    body = (await ask(client, handle, "Which ticket has a red color?"))["body"]
    assert "{ color: red;" in body


async def test_an_exact_number_does_not_hide_the_other_thing_that_was_asked(
    client: httpx.AsyncClient,
) -> None:
    numbers = [str(number) for number in range(1, 4001)]
    numbers[2000] = "The tulip is kept in the red shed."
    handle = await keep(client, "\n".join(numbers))
    answer = await ask(client, handle, "Where is the tulip kept, and which line is 300?")
    assert "red shed" in answer["body"]
