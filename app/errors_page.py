"""GET /docs/errors: what each problem's `type` points to."""

import html
from collections.abc import Iterator
from typing import NamedTuple

from app.edge.refusals import REFUSALS
from app.errors import answered_with
from domain.errors import Gone, SpillgateError, StorageError

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Spillgate: errors</title>
<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}
td,th{{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ccc}}:target{{background:#ffd}}</style>
<h1>Errors</h1>
<p>Every error is <code>application/problem+json</code>. Programs go by <code>code</code>; people read
<code>detail</code>, which says what to do. <code>retryable</code>: the same request may work later.
<code>stored: false</code>: the caller still holds the only copy. What was sent is never repeated.</p>
<table><tr><th>code<th>status<th>title<th>retryable</tr>
{rows}
</table></html>
"""


def page() -> str:
    rows = {row.code: row for row in (*_ours(), *_SERVERS)}
    lines = [
        f'<tr id="{row.code}"><td><code>{row.code}</code><td>{row.status}<td>{html.escape(row.title)}'
        f"<td>{'yes' if row.retryable else 'no'}</tr>"
        for row in sorted(rows.values())
    ]
    return _PAGE.format(rows="\n".join(lines))


class _Row(NamedTuple):
    status: int
    title: str
    code: str
    retryable: bool


_NEVER_ALONE = (Gone, StorageError)


_SERVERS = [_Row(one.status, one.title, one.code, one.retryable) for one in REFUSALS] + [
    _Row(405, "Method not allowed", "method_not_allowed", False),
    _Row(500, "Internal error", "internal_error", True),
]


def _ours(kind: type[SpillgateError] = SpillgateError) -> Iterator[_Row]:
    for child in kind.__subclasses__():
        if child not in _NEVER_ALONE:
            yield _Row(*answered_with(child), child.code, child.retryable)
        yield from _ours(child)
