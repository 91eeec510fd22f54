"""Listening on this machine: both loopback addresses or none, all ports or none, and who has one that is taken."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sbxtui.core.errors import AddressInUse
from sbxtui.services.forward.listeners import bind_all
from sbxtui.services.forward.model import ForwardSpec


@contextmanager
def listening(address: str) -> Iterator[int]:
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        yield int(server.getsockname()[1])


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) != 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_of_which_half_is_taken_is_taken_and_its_holder_is_named(address: str) -> None:
    with listening(address) as port:
        with pytest.raises(AddressInUse) as refused:
            bind_all([ForwardSpec(port, 80)])
        assert f"(pid {os.getpid()})" in refused.value.message and f"{port + 1}:80" in refused.value.hint
        assert address == "127.0.0.1" or is_free(port)


def test_one_port_that_is_taken_leaves_none_open() -> None:
    (free,) = bind_all([ForwardSpec(0, 80)])
    free.close()
    with listening("127.0.0.1") as taken:
        with pytest.raises(AddressInUse):
            bind_all([free.spec, ForwardSpec(taken, 81)])
        assert is_free(free.spec.local_port)


def test_any_port_takes_the_next_that_is_free_on_both_addresses() -> None:
    with listening("::1") as taken:
        (bound,) = bind_all([ForwardSpec(taken, 80)], any_port=True)
        assert taken < bound.spec.local_port <= taken + 100
        assert {sock.getsockname()[0] for sock in bound.sockets} == {"127.0.0.1", "::1"}
        bound.close()
