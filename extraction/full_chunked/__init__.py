"""full-chunked: a model reads every chunk (map), then one report is made of the findings (reduce)."""
