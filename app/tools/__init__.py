"""The model's tools: what the model is told of them, and how a call is executed.

All doors (`/tools/call`, `/mcp`, hooks, guardrails) offer the same tools and get the same texts. A mistake
that the model can correct is a text, not an HTTP error.
"""
