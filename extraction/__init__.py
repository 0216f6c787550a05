"""Answers questions about a stored result: the strategies, and the ladder that chooses one.

A strategy knows neither the other strategies nor budget and ledger: it gets a task, and returns an answer of
at most the task's size. Only the ladder falls back from one strategy to another; the answer then says so.
"""
