"""Running the service: its background tasks."""
