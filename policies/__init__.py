"""Deciding: pure functions over what is known of a result and the thresholds in force."""
