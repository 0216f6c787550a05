"""GET /docs/errors: what each problem's `type` points to."""

import html

from domain.errors import every_error

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Spillgate: errors</title>
<style>body{{font:16px/1.5 system-ui;max-width:75rem;margin:2rem auto;padding:0 1rem}}
td,th{{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ccc}}:target{{background:#ffd}}</style>
<h1>Errors</h1>
<p>Every error is <code>application/problem+json</code>. Programs go by <code>code</code>; people read
<code>detail</code>, which says what to do in the case at hand. <code>retryable</code>: the same request may
work later. <code>stored: false</code>: the caller still holds the only copy. No value that was
sent is repeated.</p>
<table><tr><th>code<th>status<th>title<th>retryable<th>what to do</tr>
{rows}
</table></html>
"""


def page() -> str:
    lines = [
        f'<tr id="{kind.code}"><td><code>{kind.code}</code><td>{kind.status}<td>{html.escape(kind.title)}'
        f"<td>{'yes' if kind.retryable else 'no'}<td>{html.escape(kind.advice)}</tr>"
        for kind in sorted(every_error(), key=lambda kind: (kind.status, kind.code))
    ]
    return _PAGE.format(rows="\n".join(lines))
