"""Answers questions about a stored result: the strategies, and the ladder that chooses one.

The strategies do not know each other, nor budget and ledger: they get a task and return an answer within
its size. Only the ladder falls back from one to another, and the answer then says so.
"""
