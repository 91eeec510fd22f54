"""Pure values, errors, names and text."""
