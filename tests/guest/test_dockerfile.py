"""The bundled image installs what the project is tested with."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_image_pins_the_versions_the_project_is_tested_with() -> None:
    tested = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = dict(re.findall(r"([a-z0-9.]+)==([0-9.]+)", (ROOT / "guest/Dockerfile").read_text()))
    assert set(pinned) == {"backports.zstd", "blake3", "click", "h11", "httptools", "uvicorn", "websockets"}
    assert pinned == {name: tested[name] for name in pinned}
