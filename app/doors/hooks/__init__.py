"""The hooks of coding agents: what the JSON of each means, and the answer in its own shape."""
