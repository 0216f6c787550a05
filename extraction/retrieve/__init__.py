"""retrieve: the passages that match an instruction best, verbatim, without a model."""
