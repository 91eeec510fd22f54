"""Where runsc comes from is read off the system's own apt configuration, whatever its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.localcloud.aptfetch import Suite, private_apt, suites_to_try

DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n'
UBUNTU = "ID=ubuntu\nVERSION_CODENAME=noble\n"
STANZAS = """\
Types: deb
# a comment
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/example.gpg

Types: deb-src
URIs: http://source.example.com/debian
Suites: bookworm
Components: main
"""


def _apt(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        (tmp_path / name.replace("__", "/").replace("_dot_", ".")).write_text(text)
    return tmp_path


def test_stanzas_give_the_known_good_suite_first_then_the_systems_own(tmp_path: Path) -> None:
    apt = _apt(tmp_path, sources_dot_list_dot_d__debian_dot_sources=STANZAS)
    address, keyring = "http://mirror.example.com/debian", "/usr/share/keyrings/example.gpg"
    assert suites_to_try(apt, DEBIAN) == [
        Suite("trixie", address, "main", keyring),
        Suite("bookworm", address, "main", keyring),
    ]


@pytest.mark.parametrize(
    ("line", "address", "keyring"),
    [
        ("deb http://a.example.com/ubuntu noble main universe", "http://a.example.com/ubuntu", ""),
        (
            "deb [arch=amd64 signed-by=/k.gpg] https://b.example.org noble universe",
            "https://b.example.org",
            "/k.gpg",
        ),
    ],
)
def test_one_line_sources_are_read_as_well(tmp_path: Path, line: str, address: str, keyring: str) -> None:
    other = "# deb http://c.example.com/ubuntu noble main\ndeb http://d.example.com/x other main\n"
    apt = _apt(tmp_path, sources_dot_list=other + line + "\n")
    assert suites_to_try(apt, UBUNTU) == [Suite("noble", address, "universe", keyring)]


@pytest.mark.parametrize("os_release", ["ID=fedora\nVERSION_CODENAME=x\n", "", "ID=debian\n"])
def test_a_system_without_apt_has_no_suite(tmp_path: Path, os_release: str) -> None:
    apt = _apt(tmp_path, sources_dot_list="deb http://a.example.com/x bookworm main\n")
    assert suites_to_try(apt, os_release) == []


def test_a_third_party_before_the_distribution_is_tried_after_it(tmp_path: Path) -> None:
    own = "/usr/share/keyrings/debian-archive-keyring.gpg"
    listed = f"""\
deb [signed-by=/k.gpg] https://vendor.example.com/apt bookworm main
deb https://unsigned.example.com/apt bookworm main
deb https://other.example.com/apt bookworm stable
deb [signed-by={own}] http://mirror.example.com/debian bookworm main contrib
deb http://deb.debian.org/debian bookworm main
"""
    found = suites_to_try(_apt(tmp_path, sources_dot_list=listed), DEBIAN)
    assert [one.address for one in found if one.name == "bookworm"] == [
        "http://mirror.example.com/debian",
        "http://deb.debian.org/debian",
        "https://unsigned.example.com/apt",
        "https://vendor.example.com/apt",
    ]
    assert found[0] == Suite("trixie", "http://mirror.example.com/debian", "main", own)


def test_a_stanza_with_a_key_in_it_is_a_strangers(tmp_path: Path) -> None:
    inline = STANZAS.replace("Signed-By: /usr/share/keyrings/example.gpg", "Signed-By:\n -----BEGIN PGP\n .\n x")
    listed = "deb http://second.example.com/debian bookworm main\n"
    apt = _apt(tmp_path, sources_dot_list_dot_d__a_dot_sources=inline, sources_dot_list_dot_d__b_dot_list=listed)
    assert [one.address for one in suites_to_try(apt, DEBIAN)][-1] == "http://mirror.example.com/debian"
    assert all(not one.keyring for one in suites_to_try(apt, DEBIAN))


def test_what_the_system_allows_its_apt_is_forbidden_to_ours(tmp_path: Path) -> None:
    options = private_apt(tmp_path, Suite("bookworm", "http://a.example.com", "main", ""))
    for name in ("APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories"):
        assert f"-o{name}=false" in options
