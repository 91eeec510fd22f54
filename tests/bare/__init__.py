"""The README's two commands on a machine that has nothing."""
