"""What backends share: session rules (charges, retries, quotas), cursors, watched and locked paths, threads.

The rules of sessions are pure functions: every ledger decides alike, and differs only in how it writes.
"""
