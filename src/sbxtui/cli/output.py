"""What goes to the person or the script: data on stdout, everything else on stderr. The only writer of stdout."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from sbxtui.core.errors import Interrupted, SbxError
from sbxtui.core.text import brief, harmless, harmless_line, iso
from sbxtui.core.writing import write_all

if TYPE_CHECKING:
    from sbxtui.cli.fitting import Cut
    from sbxtui.core.threads import Lane

# In place of a file's name in an OSError of one of our streams.
STDOUT, STDERR = "standard output", "standard error"
# Where a list goes to no terminal nothing of it is cut: this is more than any cell has.
_CELL_MAX = 16_384
# Surrogates that stand for no byte of a name.
_IMPOSSIBLE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")


class Output:
    """Writes results and notices as the global flags ask for."""

    def __init__(self, *, is_json: bool = False, is_quiet: bool = False) -> None:
        self.is_json = is_json
        self.is_quiet = is_quiet
        # Whether Ctrl-C is how the verb ends, and so no error.
        self.ends_by_interrupt = False
        self._lane: Lane | None = None

    def line(self, text: str) -> None:
        """One line of data for people; nothing under `--json`."""
        if not self.is_json:
            _write(sys.stdout, harmless(text) + "\n")

    def json(self, document: object) -> None:
        """One JSON document on one line, whatever the flags."""
        _write(sys.stdout, json.dumps(document, default=_jsonable) + "\n")

    def document(self, document: object) -> None:
        """The JSON document of a verb that has nothing else to show: for people over many lines."""
        if self.is_json:
            self.json(document)
        else:
            self.line(json.dumps(document, default=_jsonable, indent=2))

    def result(self, document: object) -> None:
        """The document of a verb that tells people nothing: only under `--json`."""
        if self.is_json:
            self.json(document)

    def raw(self, data: bytes, *, is_stderr: bool = False) -> None:
        """Bytes of a command or file, untouched and unbuffered; raises BrokenPipeError when the reader left."""
        stream = sys.stderr if is_stderr else sys.stdout
        with _naming(stream):
            write_all(stream.fileno(), data)

    async def pass_on(self, data: bytes, *, is_stderr: bool = False) -> None:
        """`raw` at the reader's pace: one that stalls holds up nothing else, nor the end of this program."""
        if self._lane is None:
            from sbxtui.core.threads import Lane

            self._lane = Lane()
        await self._lane.run(lambda: self.raw(data, is_stderr=is_stderr))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        cuts: Sequence[Cut] = (),
        is_wide: bool = False,
        names: Sequence[str] | None = None,
        empty: str = "",
    ) -> None:
        """Left-aligned columns, two blanks apart; when quiet, the names alone, or the rows without a header.

        Args:
            columns: The heads.
            rows: One cell for each column.
            cuts: How to make it fit into a terminal; without any it is as wide as it is.
            is_wide: Show all of it all the same.
            names: What other verbs call the rows by, one for each.
            empty: What is said in place of heads over nothing.
        """
        if self.is_quiet and names is not None:
            for name in names:
                self._name(name)
            return
        # Imported here: `--help` and mistakes draw no table, and dataclasses are a large import.
        from sbxtui.cli.fitting import GAP, Fitted, cells, fit, padded, shortened

        lines = [tuple(harmless_line(cell, limit=_CELL_MAX) for cell in row) for row in rows]
        width = terminal_columns() if cuts and not is_wide else 0
        if self.is_json:
            return
        if empty and not lines:
            self.note(empty)
            return
        fitted = fit(columns, lines, cuts, width) if width else Fitted(tuple(columns), tuple(lines))
        shown = list(fitted.rows) if self.is_quiet else [fitted.columns, *fitted.rows]
        widths = [max(map(cells, column)) for column in zip(*shown, strict=True)]
        for row in shown:
            text = GAP.join(map(padded, row, widths)).rstrip()
            self.line(shortened(text, width) if width else text)
        if fitted.left_out:
            self.note(f"note: no room for {', '.join(fitted.left_out)}: `--wide` shows all")

    def _name(self, name: str) -> None:
        """What other verbs call something by: exactly that for a program, harmless with all its blanks for a person."""
        if stdout_is_terminal():
            self.line(" ".join(re.split(r"[\t\n]", harmless(name))))
        elif not self.is_json:
            self.raw(_IMPOSSIBLE.sub("\ufffd", name).encode("utf-8", "surrogateescape") + b"\n")

    def new_page(self) -> None:
        """Begin again at the top of a terminal; in a file the next page follows the last one."""
        if stdout_is_terminal() and not self.is_json:
            _write(sys.stdout, "\x1b[H\x1b[J")

    def note(self, text: str) -> None:
        """A notice for people on stderr; silenced by `--quiet`."""
        if not self.is_quiet:
            tell(text + "\n")

    def progress(self, words: str) -> None:
        """What is being done now: only where somebody watches a terminal."""
        if not self.is_quiet and not self.is_json and sys.stderr.isatty():
            tell(f"{harmless_line(words)} …\n")

    def interrupted(self) -> int:
        """Say that Ctrl-C ended the verb; returns the exit code."""
        if self.ends_by_interrupt:
            self.note("stopped")
        else:
            self.error(Interrupted("interrupted"))
        return Interrupted.exit_code

    def error(self, error: SbxError) -> None:
        """An error: one JSON line for scripts, else two paragraphs for people."""
        if self.is_json:
            tell(json.dumps({"error": error.as_json()}, default=_jsonable) + "\n")
            return
        hint = f"\n\nhint: {brief(error.hint)}" if error.hint else ""
        tell(f"error: {brief(error.message)}{hint}\n")


def is_interactive() -> bool:
    """Whether a person can see the screen and type: all three streams are terminals that can be drawn on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def stdout_is_terminal() -> bool:
    """Whether a person sees what is written to stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def terminal_columns() -> int:
    """How wide the terminal is that stdout goes to; 0 when it is none, or one that does not say."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stdout.fileno()).columns if stdout_is_terminal() else 0
    return 0


def terminal_kind() -> str:
    """What TERM says our terminal is; empty when it says nothing that has a name."""
    kind = os.environ.get("TERM", "")
    return kind if re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", kind) else ""


def fill_closed_streams() -> None:
    """Give a program that was started with a closed stream another, as other tools do.

    Input is empty and words for people go nowhere, but a result that nobody would get is a failure: to write one is
    refused by a stdout that can only be read.
    """
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if handle != number:
                os.dup2(handle, number)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it lives as long as the process


def settle_streams() -> OSError | None:
    """At the end: hand over what is left, or return why nobody took what was written to stdout.

    Else Python tries once more at its exit, and makes the exit code 120.
    """
    lost: dict[TextIO, OSError] = {}
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as exc:
            exc.filename = STDERR if stream is sys.stderr else STDOUT
            lost[stream] = exc
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return lost.get(sys.stdout)


def tell(text: str) -> None:
    """To the person, made harmless. One whose terminal hung up can be told nothing: no failure of what was done."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, harmless(text))


def _write(stream: TextIO, text: str) -> None:
    with _naming(stream):
        stream.write(text)
        stream.flush()


@contextlib.contextmanager
def _naming(stream: TextIO) -> Iterator[None]:
    """An error of the system says which of our streams it is about."""
    try:
        yield
    except OSError as exc:
        exc.filename = STDERR if stream is sys.stderr else STDOUT
        raise


def _jsonable(value: Any) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
