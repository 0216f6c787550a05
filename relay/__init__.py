"""`spillgate mcp`: a relay before an MCP server. `relay` sends large results of its tools to the service.

It starts with each MCP server of an agent, so it imports the standard library, `command` and `domain` alone.
"""
