"""The shape of the source itself: layers, lazy imports, sizes, borders."""
