"""The shapes of the API: wire models, problems, the OpenAPI document, events, tool definitions."""
