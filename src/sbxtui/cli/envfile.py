"""Variables for a command, as docker has them: `NAME=VALUE`, or `NAME` alone for what the person has under that name.

A file has one a line; blank lines and `#` comments are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from sbxtui.cli.argtypes import passed_variable
from sbxtui.core.errors import UsageError
from sbxtui.core.secrets import NewSecret

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
    return dict(
        _variable(line.lstrip(), f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def with_own(given: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The variables of `--env`, those without a value as this process has them.

    Raises:
        UsageError: It has none of that name.
    """
    return {name: own_value(name, "--env") if value is None else value for name, value in given}


def own_value(name: str, where: str) -> str:
    """This process's own value of a variable that was named without one.

    Raises:
        UsageError: There is none; silently leaving it out would hide a forgotten `=`.
    """
    try:
        return os.environ[name]
    except KeyError:
        raise UsageError(
            f"{where}: `{name}` has no `=`, and you have no variable of that name to pass on",
            hint=f"write {name}=VALUE",
        ) from None


def own_secrets(given: Iterable[tuple[str, Sequence[str]]]) -> tuple[NewSecret, ...]:
    """The secrets of `--secret`, each with the value this process has under its name.

    Raises:
        UsageError: It has none of that name.
    """
    found = []
    for key, hosts in given:
        if (value := os.environ.get(key)) is None:
            hint = f"export {key}: a value is never taken from the command line"
            raise UsageError(f"--secret: you have no variable `{key}`", hint=hint)
        found.append(NewSecret(key, value, hosts))
    return tuple(found)


def _variable(line: str, where: str) -> tuple[str, str]:
    # Imported late: only mistakes need it.
    from argparse import ArgumentTypeError

    try:
        name, value = passed_variable(line)
    except ArgumentTypeError as exc:
        # The whole line may hold a secret; its beginning says enough to find it.
        if "=" not in line:
            raise UsageError(f"{where}: no `=`; each line must be NAME=VALUE, or NAME to pass on yours") from exc
        raise UsageError(f"{where}: {exc}") from exc
    return name, own_value(name, where) if value is None else value
