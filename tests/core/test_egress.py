"""What a network policy allows: one spelling of every host, and no second way to write an address."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.destinations import PRESETS
from sbxtui.core.egress import NO_NETWORK, NetworkPolicy, parse_network
from sbxtui.core.errors import UsageError
from sbxtui.core.hosts import THIS_MACHINE, normal_host, split_authority, why_not_public

PRIVATE = [
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1"),
    *("172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7"),
    *("203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    *("2002:0808:0808::1", "3fff::1", "5f00::1", "4000::1"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "2a00:1450::1"]
# Hosts and why none of them may pass: each is somebody's way to write an address, a user name, or two hosts at once.
TRICKS = [
    *("2130706433", "0x7f000001", "0x7f.0.0.1", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "1.2.3.4.5", "0x"),
    *("127.0.0.1.", "0.0.0.0x1", "256.1.1.1", "1.2.3", "user@example.com", "example.com@127.0.0.1", "a b", "a\tb"),
    *(
        "a\0b",
        "example.com/",
        "example.com#x",
        "example.com?x",
        "example%2ecom",
        "exa\\mple.com",
        "..",
        ".",
        "",
        "a..b",
    ),
    *(
        "-a.com",
        "a-.com",
        "ⓔxample.com",
        "example。com",
        "пример.рф",
        "[::1",
        "::1",
        "[fe80::1%eth0]",
        "[1.2.3.4]",
        "[]",
    ),
    *("[::ffff:0x7f000001]", "a" * 64 + ".com", "a." * 127 + "com", "*.example.com", "[example.com]"),
]


@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_public_is_refused(text: str) -> None:
    assert why_not_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_not(text: str) -> None:
    assert why_not_public(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize("text", TRICKS)
def test_a_host_with_a_second_meaning_is_no_host(text: str) -> None:
    if text == "127.0.0.1.":
        assert normal_host(text) == "127.0.0.1"
        return
    with pytest.raises(ValueError, match=r"\S"):
        normal_host(text)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("xn--e1afmkfd.example", "xn--e1afmkfd.example"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2606:2800:0220:1::1]", "2606:2800:220:1::1"),
        ("localhost", "localhost"),
    ],
)
def test_a_host_has_one_spelling(text: str, normal: str) -> None:
    assert normal_host(text) == normal


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_a_number_is_never_a_host(number: int) -> None:
    for text in (str(number), hex(number), oct(number).replace("o", ""), f"0x{number:X}"):
        with pytest.raises(ValueError, match="IPv4"):
            normal_host(text)


@pytest.mark.parametrize(
    "text", ["example.com", "example.com:", "example.com:0", "example.com:65536", "a:8 0", "::1:80"]
)
def test_a_place_needs_a_port_that_exists(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        split_authority(text)


@pytest.mark.parametrize(
    ("network", "host", "port", "is_allowed"),
    [
        ("none", "example.com", 443, False),
        ("internet", "example.com", 443, True),
        ("internet", THIS_MACHINE, 80, False),
        ("allow=example.com:443", "example.com", 443, True),
        ("allow=example.com:443", "example.com", 80, False),
        ("allow=example.com:443", "www.example.com", 443, False),
        ("allow=example.com:443", "example.com.evil.org", 443, False),
        ("allow=*.example.com:443", "www.example.com", 443, True),
        ("allow=*.example.com:443", "a.b.example.com", 443, True),
        ("allow=*.example.com:443", "example.com", 443, False),
        ("allow=*.example.com:443", "evilexample.com", 443, False),
        ("allow=*.sbx.internal:80", THIS_MACHINE, 80, False),
        (f"allow={THIS_MACHINE}:80", THIS_MACHINE, 80, True),
        (f"allow={THIS_MACHINE}:80", THIS_MACHINE, 81, False),
        ("allow=8.8.8.8:53", "8.8.8.8", 53, True),
        ("allow=[2606:2800:220:1::1]:443", "2606:2800:220:1::1", 443, True),
    ],
)
def test_a_policy_allows_what_it_says(network: str, host: str, port: int, is_allowed: bool) -> None:
    assert parse_network(network).allows(host, port) is is_allowed


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_rule_and_keeps_its_name(preset: str) -> None:
    policy = parse_network(f"allow={preset}")
    assert policy.text == f"allow={preset}"
    assert len(policy.rules) == len(PRESETS[preset])


@pytest.mark.parametrize(
    "text",
    ["", "all", "allow", "allow=", "allow=,", "allow=a", "allow=*.com:443", "allow=*:443", "allow=*.1.1.1.1:80"]
    + [f"allow={host}:80" for host in ("127.0.0.1", "[::1]", "10.0.0.1", "[::ffff:1.1.1.1]", "2130706433", "a@b.com")]
    + ["allow=" + ",".join(f"h{n}.example.com:443" for n in range(201))],
)
def test_what_is_no_policy_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError):
        parse_network(text)


def test_rules_are_added_once_and_taken_back() -> None:
    policy = NO_NETWORK.plus(["Example.com:443", "example.com:443", "a.example.org:80"])
    assert policy.text == "allow=example.com:443,a.example.org:80"
    assert policy.minus(["EXAMPLE.com:443"]).text == "allow=a.example.org:80"
    assert policy.minus(["example.com:443", "a.example.org:80"]) == NO_NETWORK
    with pytest.raises(UsageError):
        policy.minus(["b.example.org:80"])
    with pytest.raises(UsageError):
        NetworkPolicy(is_internet=True).plus(["example.com:443"])
