"""While Redis is away: bodies on the local disk, entries in a journal that is replayed when Redis is back."""
