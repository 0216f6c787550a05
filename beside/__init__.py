"""What runs beside an agent: the commands, the hooks, the relay, and starting the service of this user.

An agent waits for each of them: they import the standard library, `machine` and `domain` alone.
"""
