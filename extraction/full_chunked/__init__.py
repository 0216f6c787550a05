"""full-chunked: a model reads every chunk (map), then merges the findings into one report (reduce)."""
