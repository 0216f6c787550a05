"""What a model is told, how data is fenced off in it, and how its report is read."""
