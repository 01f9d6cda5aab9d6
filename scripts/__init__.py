"""Commands of the checkout; not installed."""
