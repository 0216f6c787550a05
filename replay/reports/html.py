"""The report as one HTML page."""

from replay.reports.summary import Summary


def text(summary: Summary) -> str:
    return ""
