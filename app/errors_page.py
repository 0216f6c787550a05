"""GET /docs/errors: what each problem's `type` points to."""

import html
from collections.abc import Iterator

from app.errors import answered_with
from domain.errors import SpillgateError

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
    rows = [
        f'<tr id="{kind.code}"><td><code>{kind.code}</code><td>{status}<td>{html.escape(title)}'
        f"<td>{'yes' if kind.retryable else 'no'}</tr>"
        for kind, status, title in sorted(_errors(), key=lambda row: (row[1], row[0].code))
    ]
    return _PAGE.format(rows="\n".join(rows))


def _errors(kind: type[SpillgateError] = SpillgateError) -> Iterator[tuple[type[SpillgateError], int, str]]:
    for child in kind.__subclasses__():
        yield child, *answered_with(child)
        yield from _errors(child)
