"""Host side of the wire: the home of httpx. Imports sbxguest.wire, store, settings and core."""
