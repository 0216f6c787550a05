"""What the policy redacts: the masks of stored results, and the threads that search for secrets."""
