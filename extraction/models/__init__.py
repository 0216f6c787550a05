"""The models that extraction asks: where they are, which one is asked, what a call costs."""
