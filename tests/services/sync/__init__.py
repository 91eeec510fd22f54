"""The decisions of a sync."""
