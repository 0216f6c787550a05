"""The Model Context Protocol: a server of the model's tools, without a session."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header Mcp-Name repeats, of each method that has one."""
