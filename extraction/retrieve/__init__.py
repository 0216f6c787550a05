"""retrieve: the passages that answer an instruction best, verbatim, without a model."""
