"""The protocols that other programs bring: MCP, and the guardrails of model gateways.

A door translates a request of its protocol into calls of the governor or of the model's tools, and the
outcome back. No door decides anything about a result.
What coding agents send to hooks is read and written by `beside/hooks/agents`, which `spillgate hook` shares.
"""
