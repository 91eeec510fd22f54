"""How each client is told of this server: the shape of its configuration, and where it stands."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
import yaml

from sbxtui.core.errors import NotFound, UsageError
from sbxtui.core.paths import at_home

NAME = "sbx"
_BACKUP = ".sbx-backup"
_STARTUP_S, _CALL_S = 20, 300


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def plain(self, **more: object) -> dict[str, object]:
        """As most clients have it."""
        return {**more, "command": self.command, "args": list(self.args), "env": dict(self.env)}


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its files, and how its configuration spells a server. Empty: it has no file we know of.

    `args` are arguments it needs: some take few tools only.
    """

    name: str
    user_file: str
    project_file: str
    place: tuple[str, ...]
    spell: Callable[[Launch], dict[str, object]]
    args: tuple[str, ...] = ()

    def file(self, scope: str, folder: Path) -> Path:
        """The file of a scope: of this person, or of the project in `folder`.

        Raises:
            UsageError: It has none.
        """
        path = self.project_file if scope == "project" else self.user_file
        if not path:
            raise UsageError(f"`{self.name}` has no file for scope {scope}", hint="leave --write out, and paste it")
        return folder / path if scope == "project" else at_home(path)


def _plain(launch: Launch) -> dict[str, object]:
    return launch.plain()


def _typed(launch: Launch) -> dict[str, object]:
    return launch.plain(type="stdio")


def _goose(launch: Launch) -> dict[str, object]:
    told = {"enabled": True, "type": "stdio", "name": NAME, "cmd": launch.command, "args": list(launch.args)}
    return {**told, "envs": dict(launch.env), "timeout": _CALL_S}


def _codex(launch: Launch) -> dict[str, object]:
    return {**launch.plain(), "startup_timeout_sec": _STARTUP_S, "tool_timeout_sec": _CALL_S}


_IS_MAC = sys.platform == "darwin"
_SUPPORT = "~/Library/Application Support" if _IS_MAC else "~/.config"
_SERVERS = ("mcpServers", NAME)

CLIENTS = {
    one.name: one
    for one in (
        Client("claude-code", "~/.claude.json", ".mcp.json", _SERVERS, _typed),
        Client("claude-desktop", f"{_SUPPORT}/Claude/claude_desktop_config.json", "", _SERVERS, _plain),
        Client("cursor", "~/.cursor/mcp.json", ".cursor/mcp.json", _SERVERS, _plain, ("--toolsets", "core,files,once")),
        Client("vscode", f"{_SUPPORT}/Code/User/mcp.json", ".vscode/mcp.json", ("servers", NAME), _typed),
        Client("windsurf", "~/.codeium/windsurf/mcp_config.json", "", _SERVERS, _plain),
        Client("goose", "~/.config/goose/config.yaml", "", ("extensions", NAME), _goose),
        Client("codex", "~/.codex/config.toml", ".codex/config.toml", ("mcp_servers", NAME), _codex),
        Client("pi", "", "", _SERVERS, _plain),
        Client("generic", "", "", _SERVERS, _plain),
    )
}


def own_command() -> tuple[str, ...]:
    """How this very sbx is started, from anywhere."""
    beside = Path(sys.executable).with_name(NAME)
    return (str(beside),) if beside.is_file() else (sys.executable, "-P", "-m", "sbxtui")


def snippet(client: Client, launch: Launch) -> str:
    """What is pasted into a client's configuration."""
    document: dict[str, object] = client.spell(launch)
    for key in reversed(client.place):
        document = {key: document}
    return _FORMATS[_kind_of(client.user_file)].dump(document)


def write(client: Client, file: Path, launch: Launch) -> Path | None:
    """Put this server into a client's file, and leave all else in it as it is.

    Returns:
        The copy of the file as it was; None where there was none.

    Raises:
        UsageError: The file cannot be understood; it is left as it is.
    """
    form = _FORMATS[_kind_of(file.name)]
    document = _read(file)
    # People keep such files elsewhere and have a link in their place: it stays, and what it leads to is changed.
    file = file.resolve()
    is_there = file.exists()
    table = document
    for key in client.place[:-1]:
        if not isinstance(table.setdefault(key, {}), dict):
            raise UsageError(f"{file} has something else at `{key}`", hint="leave --write out, and paste it by hand")
        table = table[key]
    table[client.place[-1]] = client.spell(launch)
    file.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if is_there and file.stat().st_size:
        backup = file.with_name(file.name + _BACKUP)
        shutil.copy2(file, backup)
    temporary = file.with_name(f".{file.name}.sbx")
    temporary.unlink(missing_ok=True)
    # Such files hold other servers' keys: at no moment may more people read them than before.
    temporary.touch(mode=0o600 if is_there else 0o666)
    temporary.write_text(form.dump(document), "utf-8")
    if is_there:
        shutil.copymode(file, temporary)
    temporary.replace(file)
    return backup


def configured(client: Client, file: Path) -> Launch:
    """How a client's file has this server started.

    Raises:
        NotFound: It does not know it. UsageError: The file cannot be understood.
    """
    document: Any = _read(file)
    for key in client.place:
        document = document.get(key) if isinstance(document, dict) else None
    if not isinstance(document, dict):
        hint = f"`sbx mcp config --client {client.name} --write` does it"
        raise NotFound(f"{file} does not name `{NAME}`", hint=hint)
    env = document.get("env") or document.get("envs") or {}
    command = str(document.get("command") or document.get("cmd") or "")
    return Launch(command, tuple(map(str, document.get("args") or ())), {str(k): str(v) for k, v in env.items()})


@dataclass(frozen=True, slots=True)
class _Format:
    load: Callable[[str], Any]
    dump: Callable[[Any], str]


def _read(file: Path) -> dict[str, Any]:
    form = _FORMATS[_kind_of(file.name)]
    try:
        text = file.read_text("utf-8") if file.exists() else ""
        document = form.load(text) if text.strip() else {}
    except (ValueError, yaml.YAMLError) as exc:
        raise UsageError(f"{file} cannot be understood: {exc}", hint="leave --write out, and paste it by hand") from exc
    if not isinstance(document, dict):
        raise UsageError(f"{file} holds no table", hint="leave --write out, and paste it by hand")
    return document


def _kind_of(name: str) -> str:
    kind = Path(name).suffix
    return kind if kind in _FORMATS else ".json"


_FORMATS = {
    ".json": _Format(json.loads, lambda document: json.dumps(document, indent=2, ensure_ascii=False) + "\n"),
    ".yaml": _Format(yaml.safe_load, lambda document: yaml.safe_dump(document, sort_keys=False, allow_unicode=True)),
    ".toml": _Format(tomlkit.parse, tomlkit.dumps),
}
