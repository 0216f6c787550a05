"""Governing one result: its measure, the replacement that fits, the charge. `policies` writes the texts.

`governor` enters each room once: ledger, content, policies, store, ledger. Body, then info, then ledger, then
answer: a crash in between leaves a body that no message names, never a message that names no body. What the
model will read is known before the ledger is asked, so check, charge and entry are one step, and no tokens
are held for work under way.
"""
