"""Telling programs that draw a whole screen from those that print lines. Pure."""

from __future__ import annotations

import re
import shlex

_SWITCH = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")
_LONGEST = 8
# Programs that want a terminal though they may say so late, or never.
_NAMES = frozenset(
    word
    for words in (
        "vi vim nvim nano emacs micro pico less more most man top htop btop atop nvtop watch mc ranger nnn tig lazygit",
        "claude codex gemini aider opencode tmux screen zellij ssh mosh ipython bpython psql mysql sqlite3 redis-cli",
        "fzf dialog whiptail gdb lldb bash sh zsh fish su login passwd",
    )
    for word in words.split()
)
_WRAPPERS = frozenset({"sudo", "env", "exec", "nice", "time", "command"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# These are programs of lines when they are given a script.
_SHELLS = frozenset({"bash", "sh", "zsh", "fish"})


class ScreenWatch:
    """Follows output and keeps what a program draws on its alternate screen out of the lines."""

    def __init__(self) -> None:
        self.is_full_screen = False
        self._rest = b""

    def lines_of(self, data: bytes) -> bytes:
        """The part of `data` that belongs to no full screen; a switch may lie across two pieces."""
        data, self._rest = self._rest + data, b""
        kept, at = [], 0
        for switch in _SWITCH.finditer(data):
            if not self.is_full_screen:
                kept.append(data[at : switch.start()])
            self.is_full_screen = switch[1] == b"h"
            at = switch.end()
        start = data.rfind(b"\x1b", max(at, len(data) - _LONGEST))
        if start >= 0 and _is_begun(data[start:]):
            data, self._rest = data[:start], data[start:]
        if not self.is_full_screen:
            kept.append(data[at:])
        return b"".join(kept)


def wants_terminal(line: str) -> bool:
    """Whether the program of a line is known to want a whole terminal."""
    try:
        words = shlex.split(line)
    except ValueError:
        return False
    while words and (words[0] in _WRAPPERS or _ASSIGNMENT.match(words[0])):
        words.pop(0)
    if not words:
        return False
    name = words[0].rpartition("/")[2]
    return name in _NAMES and not (name in _SHELLS and len(words) > 1)


def _is_begun(end: bytes) -> bool:
    return any(switch.startswith(end) for switch in (b"\x1b[?1049", b"\x1b[?1047", b"\x1b[?47"))
