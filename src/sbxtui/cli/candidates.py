"""What may stand at a place of a line that is being typed: read from the parser, so that it cannot fall behind it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sbxtui.core.model import MEMORY_SIZES_MIB, SandboxState

# What a shell adds by itself.
FILES, FOLDERS = ":files", ":folders"

_ALIVE = frozenset(SandboxState) - {SandboxState.TERMINATING, SandboxState.TERMINATED}
# Verbs that act on sandboxes in some states only; a state nobody knows excludes nothing.
_STATES = {
    "start": frozenset({SandboxState.SUSPENDED, SandboxState.UNKNOWN}),
    "stop": frozenset({SandboxState.RUNNING, SandboxState.UNKNOWN}),
    **dict.fromkeys(("exec", "shell", "attach", "output", "kill", "jobs", "cp", "fs", "sync", "forward"), _ALIVE),
}
_TAKE_COMMANDS = ("exec", "run")
_EVERY_STATE = frozenset(SandboxState)
_FIXED = {
    "memory": tuple(str(size) for size in MEMORY_SIZES_MIB),
    "network": ("none", "internet", "allow="),
    "sort": ("name", "state", "age", "image", "id", "context"),
    "filter": ("state:", "name:", "id:", "image:", "label:", "context:", "tracked:", "age<", "age>", "cost<", "cost>"),
    "signal": ("TERM", "INT", "HUP", "QUIT", "KILL", "STOP", "CONT", "USR1", "USR2"),
    **dict.fromkeys(("setup_file", "env_file"), (FILES,)),
    "folder": (FOLDERS,),
}


@dataclass(frozen=True, slots=True)
class Known:
    """Where names come from; each asks only this home's own files."""

    names: Callable[[frozenset[SandboxState]], list[str]]
    contexts: Callable[[], list[str]]
    images: Callable[[], list[str]]
    jobs: Callable[[], list[str]]


@dataclass(slots=True)
class _Line:
    """How far a line was understood; when `is_closed`, what follows is not ours to know."""

    parser: argparse.ArgumentParser
    verbs: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    pending: argparse.Action | None = None
    is_closed: bool = False

    def take(self, word: str) -> None:
        """One finished word."""
        if self.pending is not None:
            self.pending = None
        elif word == "--":
            self.is_closed = True
        elif word.startswith("-") and word != "-":
            self._take_flag(word)
        elif (sub := _subparsers(self.parser)) is not None:
            self.verbs.append(word)
            self.parser = sub.choices.get(word, self.parser)
            self.is_closed = word not in sub.choices
        else:
            self.words.append(word)
            # The rest belongs to the command, whose first word comes behind the sandbox of `exec`.
            self.is_closed = self.verb in _TAKE_COMMANDS and len(self.words) > (self.verb == "exec")

    def _take_flag(self, word: str) -> None:
        name, has_value, _ = word.partition("=")
        action = self.parser._option_string_actions.get(name)
        if action is None:
            return
        if not isinstance(action, argparse._AppendAction):
            self.used |= set(action.option_strings)
        if action.nargs != 0 and not has_value:
            self.pending = action

    @property
    def verb(self) -> str:
        """The first word of the verb."""
        return self.verbs[0] if self.verbs else ""


def candidates(parser: argparse.ArgumentParser, words: Sequence[str], known: Known) -> list[str]:
    """What may stand in the last word's place, given how it begins.

    Args:
        parser: Of the whole program.
        words: The words after the program's name; the last is being typed and may be empty.
        known: Where names come from.

    Returns:
        Words, sorted as they are best read; `FILES` or `FOLDERS` where the shell's own belong too.
    """
    line, typed = _Line(parser), words[-1] if words else ""
    if len(words) > 1 and words[0] == "help":
        words = words[1:]
    for word in _joined(words[:-1]):
        line.take(word)
    prefix = ""
    if line.pending is None and typed.startswith("--") and "=" in typed:
        flag, _, typed = typed.partition("=")
        line.take(flag)
        prefix = f"{flag}="
    # A shell that breaks words at `=` gives that as a word of its own.
    typed = typed.removeprefix("=") if line.pending is not None else typed
    return [
        word if word in (FILES, FOLDERS) else prefix + word
        for word in _possible(line, typed, known)
        if word in (FILES, FOLDERS) or word.startswith(typed)
    ]


def _joined(words: Sequence[str]) -> list[str]:
    return [word for word in words if word != "="]


def _possible(line: _Line, typed: str, known: Known) -> list[str]:
    if line.pending is not None:
        return _values(line, line.pending, known)
    if line.is_closed:
        return []
    if typed.startswith("-"):
        return _flags(line)
    if (sub := _subparsers(line.parser)) is not None:
        return list(sub.choices)
    found: list[str] = []
    for action in _positionals(line):
        found += [word for word in _values(line, action, known) if word not in line.words]
    return found


def _flags(line: _Line) -> list[str]:
    return [flag for flag in line.parser._option_string_actions if flag not in line.used]


def _positionals(line: _Line) -> list[argparse.Action]:
    """Those that the next word may be: the next one, and the one after it when the next may be left out."""
    actions = [action for action in line.parser._actions if not action.option_strings]
    at = len(line.words)
    if actions and actions[-1].nargs in ("*", "+"):
        at = min(at, len(actions) - 1)
    rest = actions[at:]
    return rest[:2] if len(rest) > 1 and rest[0].nargs == "?" and rest[1].nargs is None else rest[:1]


def _values(line: _Line, action: argparse.Action, known: Known) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    match action.dest:
        case "sandbox" | "sandboxes" | "old":
            return known.names(_STATES.get(line.verb, _EVERY_STATE))
        case "source" | "target" if line.verb == "cp":
            return [*(f"{name}:" for name in known.names(_STATES["cp"])), FILES]
        case "context":
            return known.contexts()
        case "name" if line.verbs in (["context", "use"], ["context", "rm"]):
            return [name for name in known.contexts() if name != "local" or line.verbs[1] == "use"]
        case "image" | "images":
            return known.images()
        case "source" if line.verb in ("image", "local"):
            return [FILES]
        case "job":
            return known.jobs()
        case dest:
            return list(_FIXED.get(dest, ()))


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
