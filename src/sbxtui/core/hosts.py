"""Hosts as a network policy names them and a request asks for them: one spelling each, and which addresses are public.

Whatever two parsers could read in two ways is refused, never guessed at: numbers that stand for addresses, zones,
escapes, and letters beyond ASCII.
"""

from __future__ import annotations

import ipaddress
import re

from sbxtui.core.text import harmless_line

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# This machine itself, as a sandbox names it; never looked up, and reached only by a rule that names it.
THIS_MACHINE = "host.sbx.internal"
MAX_HOST_CHARS = 253

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What inet_aton and the URL standard take for a number; as a last label it makes the whole an address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Written out: what the standard library counts as global has changed with its versions.
_NETWORKS_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        # Relays of 6to4, and the address at which a large cloud answers its machines' management questions.
        *("192.88.99.0/24", "168.63.129.16/32"),
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
# Inside of it: forms that carry an IPv4 address (Teredo, 6to4), identifiers, documentation.
_NETWORKS_V6 = tuple(
    ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16")
)


def normal_host(text: str) -> str:
    """The one spelling of a host: a name in lower case without its last dot, an address without brackets.

    Raises:
        ValueError: It is none; the message says why.
    """
    if not text.isascii() or not text.isprintable():
        raise ValueError("a host has plain ASCII letters only")
    if text.startswith("[") and text.endswith("]"):
        return _normal_v6(text[1:-1])
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _normal_v4(host)
    if len(host) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"`{harmless_line(text, limit=80)}` is no host name")
    return host


def split_authority(text: str, *, default_port: int = 0) -> tuple[str, int]:
    """`HOST:PORT` as a normal host and a port.

    Args:
        text: The authority of a request or a rule; user names in it are refused.
        default_port: What no port means; 0: there must be one.

    Raises:
        ValueError: It is none; the message says why.
    """
    host, colon, port = text.rpartition(":")
    if not colon or (text.endswith("]") and text.startswith("[")):
        if not default_port:
            raise ValueError("a port is needed, as in HOST:443")
        return normal_host(text), default_port
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65_535):
        raise ValueError(f"`{harmless_line(port, limit=20)}` is no port")
    if ":" in host and not host.startswith("["):
        raise ValueError("an IPv6 address needs brackets, as in [2001:db8::1]:443")
    return normal_host(host), int(port)


def authority(host: str, port: int) -> str:
    """A normal host and a port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def as_address(host: str) -> Address | None:
    """A normal host as an address, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def why_not_public(address: Address) -> str:
    """Why a sandbox may not reach this address; empty for one of the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return "not a public address" if any(address in one for one in _NETWORKS_V4) else ""
    if address not in _GLOBAL_V6:
        # Loopback, link-local, private, multicast, and all forms that carry an IPv4 address for a gateway or the host.
        return "not a public address"
    return "a special-purpose address" if any(address in one for one in _NETWORKS_V6) else ""


def _normal_v4(host: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError as exc:
        raise ValueError("an IPv4 address is four plain decimal numbers") from exc


def _normal_v6(text: str) -> str:
    try:
        if "%" in text:
            raise ValueError("zone")
        return str(ipaddress.IPv6Address(text))
    except ValueError as exc:
        raise ValueError(f"`{harmless_line(text, limit=80)}` is no IPv6 address") from exc
