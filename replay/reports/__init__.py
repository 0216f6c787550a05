"""The report of a replay: as a table on the terminal, an HTML page, or JSON."""
