"""What runs beside the requests: logs, metrics, readiness, sweeping, reloading, supervision."""
