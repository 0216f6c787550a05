"""The input of a strategy: the task, its source, its time and tokens; and the text of its answer."""
