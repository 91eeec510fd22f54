"""Where runsc comes from is read off the system's own apt configuration, whatever its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.localcloud.aptfetch import Suite, suites_to_try

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
        ("deb [arch=amd64 signed-by=/k.gpg] https://b.example.com/u noble main", "https://b.example.com/u", "/k.gpg"),
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
