"""The command line as a script sees it."""
