"""`spillgate mcp`: a relay before an MCP server, which replaces large results of its tools."""
