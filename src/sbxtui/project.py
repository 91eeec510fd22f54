"""The project file of a cloned repository: read, but not trusted.

Anybody can put a `sandbox.yaml` into a repository, so without `sbx trust DIR` it may only choose image, size and
workdir. What else it sets is left out and named in a notice. Trust is bound to the file's content: an edited file
asks again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from sbxtui.core.errors import FileMissing, SbxError, UsageError
from sbxtui.core.paths import at_home
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

# Of these two the second is what other programs call theirs, too.
_COMMON_NAME = "setup.yaml"
PROJECT_FILES = ("sandbox.yaml", _COMMON_NAME)
_MAX_BYTES = 1 << 20
# What sbx reads, and what the provisioner of the account side does.
_KNOWN = frozenset({"image", "memory", "workdir", "context", "region", "profile", "role", "network", "env"}) | {
    "project",
    "stack",
    "bucket",
}


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """What a project file may decide, in the names of `Settings`; empty when there is none."""

    values: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""
    notices: tuple[str, ...] = ()


def find_project_file(folder: Path, named: str = "") -> Path | None:
    """The project file that counts in `folder`: the named one, else `sandbox.yaml`, else `setup.yaml`.

    Raises:
        FileMissing: The named one does not exist.
    """
    if named:
        path = (folder / at_home(named)).absolute()
        if path.is_dir():
            return find_project_file(path)
        if not path.is_file():
            hint = "-f and SBX_SETUP name a project file; to answer questions with yes it is --yes"
            raise FileMissing(f"no project file at {path}", hint=hint)
        return path
    return next((path for name in PROJECT_FILES if _is_there(path := folder / name)), None)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A working folder that this person may not look into, as under `sudo -u`, holds no project of theirs.
        return False


def read_project_file(folder: Path, named: str, trusted_file: Path) -> ProjectFile:
    """Read the project file that counts in `folder`, leaving out what needs trust and is not trusted.

    Raises:
        UsageError: It is no valid YAML mapping, or too large; of a `setup.yaml` that nobody named that is a notice.
        FileMissing: The named one does not exist.
    """
    path = find_project_file(folder, named)
    if path is None:
        return ProjectFile()
    try:
        content = _read(path)
        table = _parse(path, content)
    except UsageError as exc:
        if named or path.name != _COMMON_NAME:
            raise
        return ProjectFile(notices=(f"{exc.message.splitlines()[0]}: taken for another program's, and left alone",))
    free, needs_trust = _split(table)
    notices = _unknown(path, table)
    if not needs_trust:
        return ProjectFile(free, str(path), notices)
    if _digest(content) == trusted_digests(trusted_file).get(str(path.resolve())):
        return ProjectFile({**free, **needs_trust}, str(path), notices)
    notice = f"{path} also sets {', '.join(sorted(needs_trust))}: left out until you run `sbx trust {path.parent}`"
    return ProjectFile(free, str(path), (*notices, notice))


def trust(folder: Path, trusted_file: Path, named: str = "") -> ProjectFile:
    """Trust the project file in `folder` as it is now; returns what it may decide from now on.

    Raises:
        FileMissing: There is none.
        SbxError: The list of trusted files cannot be written; it is as it was.
    """
    path = find_project_file(folder, named)
    if path is None:
        raise FileMissing(f"no project file in {folder}", hint="looked for " + " and ".join(PROJECT_FILES))
    content = _read(path)
    table = _parse(path, content)
    free, needs_trust = _split(table)
    digests = {**trusted_digests(trusted_file), str(path.resolve()): _digest(content)}
    try:
        trusted_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=trusted_file.parent)
        with os.fdopen(handle, "w") as out:
            json.dump(digests, out, indent=1, sort_keys=True)
        Path(temporary).replace(trusted_file)
    except OSError as exc:
        raise SbxError(f"cannot write {trusted_file}: {exc.strerror or exc}") from exc
    return ProjectFile({**free, **needs_trust}, str(path), _unknown(path, table))


def trusted_digests(trusted_file: Path) -> dict[str, str]:
    """Path of each trusted project file → SHA-256 of the trusted content; unreadable means nothing is trusted."""
    try:
        table = json.loads(trusted_file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(path): str(digest) for path, digest in table.items()} if isinstance(table, dict) else {}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror or exc}") from exc
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB", hint="a project file is a short YAML mapping")
    return content


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    import yaml

    try:
        table = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        # A date that does not exist is a ValueError, deep nesting a RecursionError.
        raise UsageError(f"{path} is no valid YAML: {exc}") from exc
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise UsageError(f"{path} must be a YAML mapping", hint="start it with lines like `image: sbx-base`")
    return table


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _split(table: Mapping[str, Any]) -> tuple[dict[str, object], dict[str, object]]:
    """What anybody may set, and what needs trust. Keys the provisioner alone reads are not ours to judge here."""
    image = table.get("image")
    free = {
        "image_arn": image if isinstance(image, str) else _inside(table, "image", "arn"),
        "memory_mib": table.get("memory"),
        "workdir": table.get("workdir"),
    }
    needs_trust = {
        "context": table.get("context"),
        "region": table.get("region"),
        "profile": table.get("profile"),
        "execution_role_arn": _inside(table, "role", "arn"),
        "egress_connector": _inside(table, "network", "egress", "connector_arn"),
        "env": table.get("env"),
    }
    return _given(free), _given(needs_trust)


def _unknown(path: Path, table: Mapping[str, Any]) -> tuple[str, ...]:
    """A notice of what nobody reads: a misspelt key would otherwise pass for a setting that holds."""
    unknown = sorted(f"`{harmless_line(str(key), limit=60)}`" for key in table if key not in _KNOWN)
    return (f"{path} sets {', '.join(unknown)}, which sbx does not know: left out",) if unknown else ()


def _inside(table: Mapping[str, Any], *keys: str) -> object:
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _given(table: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in table.items() if value not in (None, "")}
