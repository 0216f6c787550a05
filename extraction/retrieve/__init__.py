"""retrieve, without a model: the passages that hold the words of a question best, verbatim."""
