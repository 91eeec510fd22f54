"""What people write who are used to docker: verbs under other names, and flags that mean something else here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sbxtui.core.errors import UsageError

VERBS = {
    "delete": "rm",
    "remove": "rm",
    "list": "ls",
    "up": "create",
    "down": "rm",
    "ssh": "shell",
    "kill-job": "kill",
    "pause": "stop",
    "suspend": "stop",
    "resume": "start",
    "unpause": "start",
    "describe": "inspect",
    "top": "ps",
}

_IMAGE = "`-i` is --image in `create`, as in `--image NAME`; `exec -i` passes our stdin on"
_TERMINAL = "make a sandbox with `sbx create`, then `sbx shell NAME` or `sbx exec -it NAME -- CMD`"
_DETACHED = "make a sandbox with `sbx create`, then `sbx exec -d NAME -- CMD`"
_FOLDERS = "no folder of yours is seen inside: `sbx cp` copies files in and out"
_USER = "the user belongs to a command: `sbx exec -u USER NAME -- CMD`"
_NAMED = "the name is no flag: `sbx create NAME`"
# Flags that a verb does not have, with what is there instead.
_INSTEAD = {
    "create": {
        **dict.fromkeys(("-u", "--user"), _USER),
        **dict.fromkeys(("-t", "--tty"), _TERMINAL),
        **dict.fromkeys(("-d", "--detach"), "a sandbox goes on by itself: leave it out"),
        **dict.fromkeys(("-v", "--volume", "--mount"), _FOLDERS),
        "--name": _NAMED,
        "--rm": "`sbx run` removes its sandbox; `create` keeps it until `sbx rm`",
    },
    "run": {
        **dict.fromkeys(("-d", "--detach"), _DETACHED),
        **dict.fromkeys(("-v", "--volume", "--mount"), _FOLDERS),
        "--rm": "`run` always removes its sandbox: leave it out",
    },
}
_CLUSTER = re.compile(r"-[itd]{2,3}")
# Of `run`, whose `-i` is --image: no image's name is one letter.
BOTH_LETTERS = frozenset({"-it", "-ti"})
# No flag of `kill` is a number, or has two capitals.
_SIGNAL = re.compile(r"-(?:[0-9]{1,2}|[A-Z][A-Z0-9+-]+)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def refuse_other_meaning(verb: str, words: Sequence[str]) -> None:
    """Refuse a line that could be read, but hardly as it was meant: `run -it`, `create -e A=B`.

    Args:
        verb: Of the line.
        words: The line's own, and the first of a command.

    Raises:
        UsageError: With the flag that does it.
    """
    if verb not in _INSTEAD:
        return
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if _CLUSTER.fullmatch(word):
            instead = _DETACHED if verb == "run" else _TERMINAL if "t" in word else _IMAGE
            raise UsageError(f"`{verb}` knows no `{word}`", hint=instead)
        value = following if word == "-e" else word[2:] if word.startswith("-e") else ""
        if _ASSIGNMENT.fullmatch(value):
            name = value.partition("=")[0]
            hint = f"`--env {name}=…` sets a variable; `-e` is --egress, as it was in `asb`"
            raise UsageError(f"`-e` of `{verb}` attaches an egress connector and takes no value", hint=hint)


def spelled_out(verb: str, words: Sequence[str]) -> list[str]:
    """`run -it`, and a `run -i` that names no image, as they are meant: with our input, and on our terminal.

    `kill -9` and `kill -TERM` as `--signal`: so it is written everywhere else.
    """
    if verb == "kill":
        return [f"--signal={word[1:]}" if _SIGNAL.fullmatch(word) else word for word in words]
    if verb != "run":
        return list(words)
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in BOTH_LETTERS:
            found += ["--stdin", "--tty"]
        elif word == "-i" and (not following or following.startswith("-")):
            found.append("--stdin")
        else:
            found.append(word)
    return found


def hint(verb: str, words: Sequence[str], message: str) -> str:
    """What to write instead of a line that could not be read; empty when nothing comes to mind."""
    if message.startswith("argument --image/-i:"):
        return _IMAGE
    instead = _INSTEAD.get(verb, {})
    return next((instead[flag] for word in words if (flag := word.partition("=")[0]) in instead), "")
