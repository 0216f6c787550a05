"""`spillgate mcp`: a relay before an MCP server. `relay` sends large results of its tools to the service."""
