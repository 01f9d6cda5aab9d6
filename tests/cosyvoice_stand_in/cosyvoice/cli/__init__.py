"""Named as upstream's."""
