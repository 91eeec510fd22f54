"""`--env-file`: variables for a command, one `NAME=VALUE` a line, blank lines and `#` comments left out."""

from __future__ import annotations

from pathlib import Path

from sbxtui.cli.verbs import variable
from sbxtui.core.errors import UsageError

_MAX_BYTES = 1 << 20


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file. Values are taken as they stand: no quotes, no expansion.

    Raises:
        UsageError: A line that is none of this, named as `file:line`; or the file cannot be read, or is over 1 MiB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"--env-file {path}: {exc.strerror}") from exc
    if len(content) > _MAX_BYTES:
        raise UsageError(f"--env-file {path}: over 1 MiB")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as exc:
        raise UsageError(f"{path}:{content.count(bytes([10]), 0, exc.start) + 1}: not UTF-8") from exc
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, value = _variable(line.lstrip(), f"{path}:{number}")
            found[name] = value
    return found


def _variable(line: str, where: str) -> tuple[str, str]:
    # Imported late: only mistakes need it.
    from argparse import ArgumentTypeError

    try:
        return variable(line)
    except ArgumentTypeError as exc:
        # The whole line may hold a secret; its beginning says enough to find it.
        if "=" not in line:
            raise UsageError(f"{where}: no `=`; each line must be NAME=VALUE") from exc
        raise UsageError(f"{where}: {exc}") from exc
