"""The Model Context Protocol: a server of the model's tools.

It keeps no session between requests, so that any replica can answer any of them.
"""
