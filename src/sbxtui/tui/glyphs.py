"""The few signs beyond ASCII that the dashboard draws with, and what stands for them where a terminal lacks them."""

from __future__ import annotations

_LINES = {"─": "-", "━": "-", "│": "|", "┃": "|"} | {corner: "+" for corner in "┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋"}
# Heights stay heights.
_BLOCKS = {sign: "#" for sign in "█▉▊▋▌▍▎▏▐░▒▓▔"} | dict(zip("▁▂▃▄▅▆▇", "_.:-=+*", strict=True))
_SIGNS = {"›": ">", "‹": "<", "✓": "*", "▸": ">", "▾": "v", "…": "~", "·": "-", "—": "-", "–": "-", "•": "*", "×": "x"}
# One cell for one cell, so that nothing moves.
ASCII = str.maketrans({**_LINES, **_BLOCKS, **_SIGNS})


def is_plain(wanted: str, encoding: str) -> bool:
    """Whether to draw with ASCII: as `wanted` says, else where the terminal's encoding has nothing else."""
    if wanted:
        return wanted == "ascii"
    return encoding.lower().replace("-", "") not in ("utf8", "utf16")


def plain(text: str, encoding: str) -> str:
    """`text` with our own signs in ASCII; of other people's, what the encoding lacks becomes `?`."""
    return text.translate(ASCII).encode(encoding, "replace").decode(encoding)
