"""Decides about results and writes the texts: pure functions. `oversized` names the cap.

A decision is a function of the facts about a
result and of the policy in force. Nothing here waits, reads a clock or knows a store, so it is tested without
any of them.
"""
