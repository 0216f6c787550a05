"""The nouns of Spillgate: frozen values, enums, ports and errors. Imports no other room."""

__version__ = "0.1.0"
