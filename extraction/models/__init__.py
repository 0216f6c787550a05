"""The models that extraction asks: backends, tries, costs. After a bad report, `reports` asks the next.

Every attempt to call a model is reported to the caller's accounting, also if it fails or is cancelled.
"""
