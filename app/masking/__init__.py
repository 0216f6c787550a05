"""What the policy redacts: the masks of results, and the threads that search for secrets."""
