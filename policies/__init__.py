"""Decides about results and writes the texts: pure functions, a file an outcome. `oversized` names the cap.

A rule or an outcome is one file and one line in `decide`. A decision is a function of the facts about a
result and of the policy in force. Nothing here waits, reads a clock or knows a store, so it is tested without
any of them.
"""
