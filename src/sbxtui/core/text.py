"""Making text from outside harmless, and showing quantities to people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# C0 (but tab and newline), DEL, C1, and the Unicode controls that reorder or hide text.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATES = re.compile(r"[\ud800-\udfff]")
# A whole escape sequence goes at once, so that `\x1b[31mred` becomes `red` and not `[31mred`.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|(?=\x1b)|$)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)

# Longer than any path: those are told whole, for their end says most.
_ENDLESS_WORD = re.compile(r"(\S{80})\S{4000,}")
_BRIEF = 8_000


def harmless(text: str) -> str:
    """Text a terminal can show and nothing more: no escapes, no controls but tab and newline, no bidi tricks.

    Lone surrogates (bytes that were not UTF-8) become U+FFFD.
    """
    if text.isascii() and text.isprintable():
        # Most of what there is, and ten times as fast.
        return text
    text = _SURROGATES.sub("\ufffd", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def without_controls(text: str) -> str:
    """`text` without what a terminal obeys, character by character: what was the rest of a sequence stays, as text."""
    return _CONTROLS.sub("", _SURROGATES.sub("\ufffd", text)).replace("\t", "").replace("\n", "")


def harmless_line(text: str, *, limit: int = 400) -> str:
    """`harmless` on one line: newlines and tabs become spaces, and it ends in `…` after `limit` characters."""
    line = " ".join(harmless(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def brief(text: str) -> str:
    """`text` without the rest of words and of itself that nobody would read, such as a whole file in a wrong place."""
    text = _ENDLESS_WORD.sub(r"\1…", text)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 1] + "…"


def reason_words(state_reason: object) -> str:
    """Why a sandbox ended, for people: without the platform's word for an end that went well, which reads as praise."""
    return str(state_reason).removeprefix("Success.").lstrip()


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun: `1 name`, `2 names`, `0 ended sandboxes`."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def short_age(delta: timedelta) -> str:
    """An age as people say it: `4s`, `12m`, `3h`, `5d`."""
    seconds = max(0, int(delta.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def short_size(size_bytes: float) -> str:
    """A size in binary units with at most one decimal: `512 B`, `1.5 KiB`, `3 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size_bytes) < 1024 or unit == "TiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 10 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError("unreachable")


_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
# Longer ones are slips of the hand, and go beyond every calendar.
_LONGEST_S = 100 * 366 * 86_400
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")


def parse_duration_s(text: str) -> float:
    """Seconds of `90`, `1.5h`, `2h30m`.

    Raises:
        ValueError: It is no duration, or longer than a hundred years.
    """
    text = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        found = float(text)
    elif _DURATION.fullmatch(text):
        found = sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))
    else:
        raise ValueError(f"`{harmless_line(text)}` is no duration; write 90, 45s, 10m, 2h30m")
    if found > _LONGEST_S:
        raise ValueError(f"`{harmless_line(text, limit=40)}` is longer than a hundred years")
    return found


_MEMORY = re.compile(r"(?P<number>\d{1,9})(?P<unit>|m|mb|mib|g|gb|gib)", re.ASCII | re.IGNORECASE)


def parse_memory_mib(text: str) -> int:
    """MiB of `512`, `512M`, `512MiB`, `2g`, `2GiB`.

    Raises:
        ValueError: It is no size, or none at all.
    """
    found = _MEMORY.fullmatch(text.strip())
    if found is None or not int(found["number"]):
        raise ValueError(f"`{harmless_line(text, limit=40)}` is no memory size: write it in MiB, like 512, or like 2g")
    return int(found["number"]) * (1024 if found["unit"].lower().startswith("g") else 1)


def iso(instant: datetime) -> str:
    """An aware instant as ISO-8601 UTC with milliseconds and `Z`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
