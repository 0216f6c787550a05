"""Doors: protocols of others by which agents reach the tools and the governor."""
