"""`spillgate mcp`: a relay before an MCP server, which replaces large results of its tools.

It starts with each MCP server of an agent, so it imports the standard library, `command` and `domain` alone.
"""
