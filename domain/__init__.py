"""The nouns of Spillgate: frozen values, enums, ports and errors. Imports no other room."""
