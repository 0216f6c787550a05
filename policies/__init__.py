"""Decides about results: pure functions of the facts about a result and the policy in force.

A rule or an outcome is one file and one line in `decide`. Nothing here waits, reads a clock or knows a store,
so a decision is tested without any of them.
"""
