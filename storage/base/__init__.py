"""What backends share: session rules, quotas, cursors, the lock of a process, worker threads."""
