"""The Model Context Protocol: a server of the model's tools, without a session."""
