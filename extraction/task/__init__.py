"""A strategy's input: the task, the result that it may read, time and window; and the texts of answers."""
