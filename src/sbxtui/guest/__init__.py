"""Host side of the wire: the home of httptools. Imports sbxguest.wire, sbxguest.tree, store, settings and core."""
