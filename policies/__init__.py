"""Decides about results and writes the texts that replace them: pure functions.

A decision depends only on the facts about a result and on the policy in force. Nothing here waits, reads a
clock or uses a store.
"""
