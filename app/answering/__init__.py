"""Answering a question about a stored result: by `/extract`, and by the model's own tool.

The strategies of `extraction` know neither ledger nor budget. Here their answer is framed and charged in
one step, made shorter where the budget does not hold it, and every attempt to call a model is an entry.
"""
