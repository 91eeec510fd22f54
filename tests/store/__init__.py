"""The store under many processes."""
