"""The detached supervisor of links."""
