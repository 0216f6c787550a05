"""The client of Spillgate, the sidecar that bounds what the tools of agents return."""

from spillgate.client import AsyncSpillgate, Spillgate
from spillgate.exchange import Check, Governed, Resolved, Tools
from spillgate.functions import governed, governed_tools

__version__ = "0.2.0"
__all__ = [
    "AsyncSpillgate",
    "Check",
    "Governed",
    "Resolved",
    "Spillgate",
    "Tools",
    "governed",
    "governed_tools",
]
