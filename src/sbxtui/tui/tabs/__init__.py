"""Detail tabs, one file each."""
