"""The model's tools: what the model is told of them, and how a call is executed."""
