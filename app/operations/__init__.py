"""What runs beside the requests: logs, metrics, spans, audit, readiness, clocks, supervision.

Each task that runs in the background is supervised: it logs its fault and starts again, or the process
ends. So a task cannot stop while the service still reports that it is live.
"""
