"""Argparse with our errors, our global flags, and verbs that name their code."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn, Protocol

from sbxtui.cli.habits import VERBS
from sbxtui.cli.output import Output
from sbxtui.core.errors import UsageError
from sbxtui.core.text import harmless_line

# argparse's own words, the only way it tells.
_NO_SUCH_VERB = re.compile(r"argument VERB: invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)", re.DOTALL)

_WORD_WIDTH = 64


class Parser(argparse.ArgumentParser):
    """An argparse parser whose mistakes are our errors. `tail` ends its usage: words that it never sees itself."""

    tail = ""

    def __init__(self, **options: Any) -> None:
        # A flag that is added later must not change what a script's abbreviation means.
        super().__init__(allow_abbrev=False, **options)

    def format_help(self) -> str:
        """As argparse's, with the tail."""
        if self.tail and self.usage is None:
            usage = self.format_usage().removeprefix("usage: ").rstrip("\n")
            self.usage = f"{usage} {self.tail}".replace("%", "%%")
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that `--json` and exit codes hold for mistakes too."""
        see = f"see `{self.prog} --help`"
        if message.endswith("required: VERB"):
            raise UsageError(f"`{self.prog}` needs a verb of its own", hint=f"one of {', '.join(self._own_verbs())}")
        mistake = _NO_SUCH_VERB.match(message)
        if mistake is None:
            raise UsageError(message, hint=see)
        word = harmless_line(mistake["word"], limit=_WORD_WIDTH)
        meant = _meant(word, re.findall(r"'([^']*)'", mistake["known"]))
        raise UsageError(f"`{self.prog}` has no verb `{word}`", hint=meant or see)

    def _own_verbs(self) -> list[str]:
        groups = [one for one in self._actions if isinstance(one, argparse._SubParsersAction)]
        return [verb for group in groups for verb in group.choices]

    def _print_message(self, message: str, _file: object = None) -> None:
        """Help and version. argparse itself says nothing of a stdout that does not take them."""
        Output().line(message.rstrip("\n"))


def _meant(word: str, known: list[str]) -> str:
    """A guess at what a mistyped verb was to be; empty when it is like none."""
    import difflib

    near = [VERBS[word]] if VERBS.get(word) in known else difflib.get_close_matches(word.lower(), known, n=2)
    return f"did you mean {' or '.join(f'`{verb}`' for verb in near)}?" if near else ""


def add_global_flags(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take every global flag, without defaults: those are set once, at the top."""
    group = parser.add_argument_group("global flags")
    add = group.add_argument
    quiet = argparse.SUPPRESS
    add("--context", "-c", default=quiet, metavar="NAME", help="act on this context instead of the one in use")
    add("--region", default=quiet, help="AWS region")
    add("--profile", default=quiet, help="AWS profile")
    add(
        "--isolation",
        default=quiet,
        metavar="TIER",
        help="only this (gvisor), or at least it (>=gvisor), for a new sandbox and in old ones; else fail",
    )
    add("--file", "-f", dest="setup_file", default=quiet, metavar="FILE", help="project file (sandbox.yaml)")
    add("--json", action="store_true", default=quiet, help="one JSON document on stdout, errors as JSON on stderr")
    add("--quiet", "-q", action="store_true", default=quiet, help="only the data")
    add("--no-input", action="store_true", default=quiet, help="never ask")
    add("--debug", action="store_true", default=quiet, help="show tracebacks and debug logs")


class Arguments(Protocol):
    """What takes the flags and words of a verb."""

    def add_argument(self, *flags: str, **options: Any) -> object:
        """As argparse's."""
        ...


def destructive(parser: Arguments) -> None:
    """The flags of a verb that takes something away for good."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def wide(parser: Arguments) -> None:
    """The flag of a verb that tells a table."""
    parser.add_argument("--wide", action="store_true", help="show all of the table, wider than the terminal or not")


class _Unasked:
    """Stands in for the parser of a verb that this line does not ask for: making forty takes longer than parsing."""

    def add_argument(self, *flags: str, **options: Any) -> object:
        """Forget it."""
        return None


_UNASKED = _Unasked()


class Adder:
    """Adds verbs to one list of subcommands.

    Args:
        verbs: The list; none where no verb is asked for.
        only: The one verb that is made; empty: every one.
    """

    def __init__(self, verbs: argparse._SubParsersAction[Parser] | None, *, only: str = "") -> None:
        self._verbs = verbs
        self._only = only

    def __call__(self, name: str, handler: str, help_text: str, *, detail: str = "", tail: str = "") -> Arguments:
        if self._verbs is None or self._only not in ("", name):
            return _UNASKED
        parser = self._verbs.add_parser(name, help=help_text, description=detail or help_text)
        parser.set_defaults(handler=f"sbxtui.cli.{handler}")
        parser.tail = tail
        add_global_flags(parser)
        return parser

    def group(self, name: str, help_text: str, *, detail: str = "") -> Adder:
        """A verb with verbs of its own."""
        if self._verbs is None or self._only not in ("", name):
            return Adder(None)
        parser = self._verbs.add_parser(name, help=help_text, description=detail or help_text)
        return Adder(parser.add_subparsers(dest=f"{name}_verb", metavar="VERB", parser_class=Parser, required=True))
