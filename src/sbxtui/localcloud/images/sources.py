"""Where this machine's own package managers fetch from: builds reach that even where it is no public address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sbxtui.core.destinations import PRESETS
from sbxtui.core.hosts import authority, split_authority

_FILES = ("apt/sources.list", "apt/sources.list.d/*.list", "apt/sources.list.d/*.sources", "pip.conf")
_ADDRESS = re.compile(r"\b(https?)://([^/\s@]+)(?=[/\s]|$)")
_PORTS = {"http": 80, "https": 443}
# Where they fetch from that are told nothing else.
_USUAL = (*PRESETS["pypi"], *PRESETS["npm"])


def own_sources(etc: Path = Path("/etc")) -> frozenset[str]:
    """Hosts and ports, as `authority` writes them. Blocking."""
    return frozenset((*_USUAL, *_named(etc)))


def _named(etc: Path) -> Iterable[str]:
    for pattern in _FILES:
        for file in etc.glob(pattern):
            try:
                lines = file.read_text().splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            for line in lines:
                if not line.lstrip().startswith("#"):
                    yield from (place for kind, host in _ADDRESS.findall(line) if (place := _place(kind, host)))


def _place(kind: str, host: str) -> str:
    try:
        return authority(*split_authority(host, default_port=_PORTS[kind]))
    except ValueError:
        return ""
