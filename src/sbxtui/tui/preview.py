"""A file's first bytes as lines for the screen: highlighted text, or a dump of what is no text. Pure, but not fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rich.segment import Segment

from sbxtui.core.text import harmless, harmless_line, short_size

# So much of a file is fetched; highlighting is for what a person would read as a whole.
MAX_BYTES = 256 * 1024
_MAX_DUMP_BYTES = 16 * 1024
_MAX_HIGHLIGHT_CHARS = 128 * 1024
_MAX_LINE_CHARS = 4 * 1024
_LOOKED_AT_BYTES = 8 * 1024
_ROW_BYTES = 16


@dataclass(frozen=True, slots=True)
class Preview:
    """Lines as segments (all harmless), their plain texts, and what to know about them."""

    path: str
    lines: Sequence[Sequence[Segment]]
    texts: Sequence[str]
    words: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.texts


NOTHING = Preview("", (), (), "")


def preview_of(path: str, head: bytes, size_bytes: int, style: str) -> Preview:
    """Lines of a file.

    Args:
        path: Its path, which tells its language.
        head: Its first bytes.
        size_bytes: How large the whole is.
        style: A pygments style; empty for no colours.
    """
    if _is_binary(head):
        texts = _dump(head[:_MAX_DUMP_BYTES])
        words = f"binary, {short_size(size_bytes)}" + _cut_words(min(len(head), _MAX_DUMP_BYTES), size_bytes)
        return Preview(path, [[Segment(text)] for text in texts], texts, words)
    text = harmless(head.decode("utf-8", "replace")).expandtabs(4)
    texts = [_clipped(line) for line in text.split("\n")]
    if texts and not texts[-1]:
        texts.pop()
    lines = _highlighted(path, texts, style) if style and len(text) <= _MAX_HIGHLIGHT_CHARS else None
    words = f"{len(texts):,} lines, {short_size(size_bytes)}" + _cut_words(len(head), size_bytes)
    return Preview(path, lines or [[Segment(line)] for line in texts], texts, words)


def _cut_words(shown_bytes: int, size_bytes: int) -> str:
    return f" · only the first {short_size(shown_bytes)} are shown, w downloads it" if shown_bytes < size_bytes else ""


def _is_binary(head: bytes) -> bool:
    """Whether it is no text: has a NUL, or much that is no UTF-8. A sequence cut at the end does not count."""
    looked_at = head[:_LOOKED_AT_BYTES]
    if b"\0" in looked_at:
        return True
    broken = looked_at.decode("utf-8", "replace").count("\ufffd")
    return broken > max(1, len(looked_at) // 20)


def _clipped(line: str) -> str:
    if len(line) <= _MAX_LINE_CHARS:
        return line
    return line[:_MAX_LINE_CHARS] + f"… {len(line) - _MAX_LINE_CHARS:,} more characters"


def _dump(head: bytes) -> list[str]:
    rows = []
    for at in range(0, len(head), _ROW_BYTES):
        row = head[at : at + _ROW_BYTES]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{_ROW_BYTES * 3}} {shown}")
    return rows


def _highlighted(path: str, texts: Sequence[str], style: str) -> list[list[Segment]] | None:
    """Lines with colours; None where no language is known for the name."""
    from pygments.lexers import get_lexer_for_filename
    from pygments.util import ClassNotFound
    from rich.syntax import PygmentsSyntaxTheme

    try:
        lexer = get_lexer_for_filename(harmless_line(PurePosixPath(path).name), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    theme = PygmentsSyntaxTheme(style)
    lines: list[list[Segment]] = [[]]
    # A lexer may know a line only by its end.
    for token, text in lexer.get_tokens("\n".join(texts) + "\n"):
        look = theme.get_style_for_token(token)
        for at, part in enumerate(text.split("\n")):
            if at:
                lines.append([])
            if part:
                lines[-1].append(Segment(part, look))
    return lines[:-1]
