"""Named and shaped as upstream's package."""
