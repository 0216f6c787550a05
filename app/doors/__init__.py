"""The ways in that other programs bring along: what their requests mean, and their answers."""
