"""The models that extraction asks: where they are, which one is asked, what a call costs.

Every attempt to call a model is reported to the caller's accounting, also if it fails or is cancelled.
"""
