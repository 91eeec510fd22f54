"""The local cloud and its runtimes."""
