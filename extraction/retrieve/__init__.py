"""retrieve, without a model: the passages that match an instruction best, verbatim; of a table a query."""
