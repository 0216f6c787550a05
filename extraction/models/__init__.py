"""The models that extraction asks: where they are, which one is asked, what a call costs."""

from extraction.models.pool import ModelConfig, ModelPool
from extraction.models.usage import CallRules

__all__ = ["CallRules", "ModelConfig", "ModelPool"]
