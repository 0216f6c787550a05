"""The command line: `spillgate serve`, `check-config`, `try`, `healthcheck` and `openapi`."""
