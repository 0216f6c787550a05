"""The model's tools: what they are called, what they take, and what each answers with."""
