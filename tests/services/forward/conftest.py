"""A guest for every test."""

from tests.guest.conftest import guest, warm_guest

__all__ = ["guest", "warm_guest"]
