"""full-chunked: a model reads every chunk (map), then merges the findings into one report (reduce).

Findings are stored by chunk, so that a retry after a failure pays only for the missing findings.
"""
