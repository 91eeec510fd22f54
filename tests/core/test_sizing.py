"""Sizes and networks are never accepted and ignored."""

from __future__ import annotations

import pytest

from sbxtui.core.errors import PolicyDenied, SbxError, UsageError
from sbxtui.core.model import ContextKind
from sbxtui.core.sizing import check_cpus, check_memory_mib, check_network, sized_image_name

LOCAL, AWS = ContextKind.LOCAL, ContextKind.AWS


@pytest.mark.parametrize(
    ("image", "memory_mib", "name"),
    [
        ("sbx-base", 0, "sbx-base-2048"),
        ("sbx-base", 512, "sbx-base-512"),
        ("sbx-base-512", 0, "sbx-base-512"),
        ("sbx-base-512", 8192, "sbx-base-8192"),
        ("tools", 0, "tools"),
        ("tools", 1024, "tools-1024"),
    ],
)
def test_memory_picks_the_variant_of_an_image(image: str, memory_mib: int, name: str) -> None:
    assert sized_image_name(image, memory_mib) == name


@pytest.mark.parametrize("memory_mib", [1, 1000, 16384, -512])
def test_a_size_that_does_not_exist_names_those_that_do(memory_mib: int) -> None:
    with pytest.raises(UsageError) as caught:
        check_memory_mib(memory_mib)
    assert "512, 1024, 2048, 4096, 8192" in caught.value.hint


def test_processors_are_checked_against_the_size() -> None:
    check_cpus(4, 2048)
    with pytest.raises(UsageError) as caught:
        check_cpus(5, 2048)
    assert "--memory 4096" in caught.value.hint
    with pytest.raises(UsageError):
        check_cpus(17, 8192)
    with pytest.raises(UsageError):
        check_cpus(0, 512)


@pytest.mark.parametrize("image", ["", "a b", "x" * 65, "a/b", "é"])
def test_a_name_no_image_can_have_is_refused(image: str) -> None:
    with pytest.raises(UsageError):
        sized_image_name(image, 0)


@pytest.mark.parametrize(
    ("network", "kind", "connectors", "effective"),
    [
        ("", LOCAL, (), "none"),
        ("none", LOCAL, (), "none"),
        ("internet", LOCAL, (), "internet"),
        ("allow=Example.com:443,*.example.org:80", LOCAL, (), "allow=example.com:443,*.example.org:80"),
        ("", AWS, (), "managed"),
        ("internet", AWS, (), "internet"),
        ("", AWS, ("arn:c",), "connector"),
        ("none", AWS, ("arn:c",), "connector"),
    ],
)
def test_the_effective_network_is_said(
    network: str, kind: ContextKind, connectors: tuple[str, ...], effective: str
) -> None:
    assert check_network(network, kind, connectors) == effective


@pytest.mark.parametrize(
    ("network", "kind", "connectors", "error"),
    [
        ("", LOCAL, ("arn:c",), PolicyDenied),
        ("none", AWS, (), PolicyDenied),
        ("allow=example.com:443", AWS, (), PolicyDenied),
        ("everything", LOCAL, (), UsageError),
        ("allow=", AWS, (), UsageError),
        ("allow=bad host:1", AWS, (), UsageError),
        ("allow=127.0.0.1:80", LOCAL, (), UsageError),
    ],
)
def test_a_network_nothing_would_enforce_is_refused(
    network: str, kind: ContextKind, connectors: tuple[str, ...], error: type[SbxError]
) -> None:
    with pytest.raises(error):
        check_network(network, kind, connectors)


def test_without_isolation_the_network_is_the_hosts_and_nothing_else_is_promised() -> None:
    assert check_network("", LOCAL, (), has_own_network=False) == "host"
    for network in ("none", "internet", "allow=example.com:443"):
        with pytest.raises(PolicyDenied):
            check_network(network, LOCAL, (), has_own_network=False)
