"""What a call asks for, in one line that a person decides by."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from sbxtui.core.text import harmless_line, short_size
from sbxtui.mcp_server.params import Args

# What goes into files, programs and environments: not to be read by whoever looks at the list of calls.
_CONTENTS = frozenset({"content", "stdin", "stdin_base64", "data", "data_base64"})
_VALUE_WIDTH, _WIDTH = 200, 400


def wish(args: Args) -> str:
    """The arguments of a call: of contents only how much there is, of variables only the names."""
    return harmless_line(" ".join(_words(args)), limit=_WIDTH)


def _words(args: Args) -> Iterator[str]:
    for name, value in args.items():
        if name in _CONTENTS:
            yield f"{name}=<{short_size(len(str(value).encode('utf-8', 'replace')))}>"
        elif isinstance(value, Mapping):
            yield f"{name}={','.join(map(str, value))}"
        elif isinstance(value, tuple):
            yield f"{name}={_cut(shlex.join(value))}"
        elif isinstance(value, str):
            yield f"{name}={_cut(shlex.quote(value))}"
        else:
            yield f"{name}={str(value).lower()}"


def _cut(text: str) -> str:
    return harmless_line(text, limit=_VALUE_WIDTH)
