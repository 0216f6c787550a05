import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extraction.prompts import closing, new_nonce, opening
from extraction.reports import parse_report

NONCE = "4be1c07a99d2f365"
OPEN, CLOSE = opening(NONCE), closing(NONCE)

WRITTEN = {
    "as asked for": f"{OPEN}\nthe report\n{CLOSE}",
    "with words around it": f"Here it is:\n{OPEN}the report{CLOSE}\nI hope it helps.",
    "without the closing tag": f"{OPEN}\nthe report\n",
    "with the closing tag cut": f"{OPEN}\nthe report\n{CLOSE[:-5]}",
    "with a closing tag that has spaces": f"{OPEN}the report< / {CLOSE[2:-1]} >",
    "in capitals": f"{OPEN.upper()}the report{CLOSE.upper()}",
    "with other quotes": f"<ai-agent-{NONCE}-FINAL format='text'>the report{CLOSE}",
    "without attributes": f"<ai-agent-{NONCE}-FINAL>the report{CLOSE}",
    "with spaces in the tag": f'< ai-agent-{NONCE}-FINAL  format = "text"\n>the report{CLOSE}',
    "in a code fence": f"```xml\n{OPEN}\nthe report\n{CLOSE}\n```",
    "in a code fence, unclosed": f"```\n{OPEN}\nthe report\n```\n",
    "with a code fence inside": f"{OPEN}\n```text\nthe report\n```\n{CLOSE}",
    "after a think block": f"<think>What is asked?</think>\n{OPEN}the report{CLOSE}",
    "after a think block that names the tag": f"<think>Use {OPEN}, then {CLOSE}.</think>{OPEN}the report",
    "after a think block without an end": f"<thinking>Use {OPEN}. Now:\n{OPEN}the report{CLOSE}",
    "after a think block without a beginning": f"I am to use {OPEN}.</think>{OPEN}the report{CLOSE}",
    "after a draft": f"{OPEN}a draft{CLOSE} No, better:\n{OPEN}the report{CLOSE}",
    "before a think block": f"{OPEN}the report{CLOSE}<think>Done.</think>",
    "before its opening tag is named": f"{OPEN}\nthe report\n{CLOSE}\n\nIt stands in {OPEN} as asked.",
    "before an empty one": f"{OPEN}\nthe report\n{CLOSE}\n{OPEN}\n{CLOSE}",
    "before one of dots": f"{OPEN}\nthe report\n{CLOSE}\nThe form was {OPEN}…{CLOSE}.",
    "before both tags are named": f"{OPEN}\nthe report\n{CLOSE}\nI used {OPEN} and {CLOSE} as you wanted.",
    "after both tags are named": f"I shall use {OPEN} and {CLOSE}.\n\n{OPEN}\nthe report\n{CLOSE}",
    "after its opening tag is named": f"It goes into {OPEN}, then:\n{OPEN}the report{CLOSE}",
    "before another one begins": f"{OPEN}the report{CLOSE}\n\n{OPEN}\nThe rest follo",
    "before its closing tag is named": f"{OPEN}the report{CLOSE} I did not forget {CLOSE}.",
    "after a think block, and named": f"<think>?</think> {OPEN}the report{CLOSE} as {OPEN} a {CLOSE}",
}
NONE = {
    "without a wrapper": "the report",
    "nothing": "",
    "with another nonce": f"{opening(new_nonce())}the report{CLOSE}",
    "with a longer nonce": opening(NONCE + "0") + "the report",
    "with the closing tag alone": f"the report{CLOSE}",
    "in a think block alone": f"<think>{OPEN}the report{CLOSE}</think> Done.",
    "in nested think blocks": f"<think>{OPEN}the<think>report</think>{CLOSE}</think> Done.",
    "in thoughts without a beginning": f"I am to use {OPEN} here.\n</think>\nThe answer is 4.",
    "with a broken opening tag": OPEN[:-1] + "\nthe report",
}


@pytest.mark.parametrize("reply", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_report_is_found_however_it_is_wrapped(reply: str) -> None:
    assert parse_report(reply, NONCE) == "the report"


@pytest.mark.parametrize("reply", NONE.values(), ids=NONE.keys())
def test_what_is_no_report_is_none(reply: str) -> None:
    assert parse_report(reply, NONCE) is None


def test_an_empty_report_is_not_the_same_as_none() -> None:
    assert parse_report(OPEN + " \n" + CLOSE, NONCE) == ""
    assert parse_report(OPEN, NONCE) == ""


@pytest.mark.parametrize(
    "report",
    [
        "</think> stands in line 4 of the template",
        "```py\na = 1\n```\nand\n```py\nb = 2\n```",
        "<p>kept</p>",
        "a </b",
        "```",
        "~~~\n```\n~~~ x",
    ],
)
def test_marks_that_belong_to_the_report_stay(report: str) -> None:
    assert parse_report(f"{OPEN}\n{report}\n{CLOSE}", NONCE) == report


@given(st.text().map(str.strip).filter(lambda text: "```" not in text and "~~~" not in text))
def test_a_report_comes_back_as_it_was_written(report: str) -> None:
    nonce = new_nonce()
    assert parse_report(f"{opening(nonce)}\n{report}\n{closing(nonce)}", nonce) == report


@given(st.lists(st.sampled_from([OPEN, CLOSE, "<think>", "</think>", "```", "\n", "<", "</", " ", "x"])))
def test_no_reply_makes_it_raise(pieces: list[str]) -> None:
    found = parse_report("".join(pieces), NONCE)
    assert found is None or found == found.strip()


def test_a_report_that_names_the_tag_in_a_sentence_is_whole() -> None:
    report = f"Line 4 of the template has {OPEN} before the text."
    assert parse_report(f"{OPEN}\n{report}\n{CLOSE}", NONCE) == report


@pytest.mark.parametrize(
    "piece", ["<", " ", "< ", "</", "<think>", "</think>", "`", "```\n", OPEN[:-1], OPEN, CLOSE, "<ai-agent-"]
)
def test_much_of_anything_is_read_in_no_time(piece: str) -> None:
    reply = piece * (200_000 // len(piece))
    started = time.process_time()
    parse_report(reply, NONCE)
    parse_report(OPEN + reply, NONCE)
    parse_report(f"```\n{OPEN}\n```\n{reply}", NONCE)
    assert time.process_time() - started < 0.3


def test_nonces_differ_and_can_stand_in_a_tag() -> None:
    nonces = {new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(nonce) == 16 and nonce.isalnum() for nonce in nonces)
