"""PostgreSQL: sessions and accounting that any number of processes share."""
