"""Decides about results: pure functions of the facts about a result and the policy in force."""
