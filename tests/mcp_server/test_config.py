"""`sbx mcp config --write`: clients are told of the server, and what they had stays."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sbxtui.core.errors import NotFound, UsageError
from sbxtui.mcp_server.config import CLIENTS, Launch, configured, snippet, write
from tests.support.sbx import Sbx

# Each as its makers spell it: where a server stands, and by which key its program.
SPELT = {
    "claude-code": ("mcpServers", "command"),
    "claude-desktop": ("mcpServers", "command"),
    "cursor": ("mcpServers", "command"),
    "vscode": ("servers", "command"),
    "windsurf": ("mcpServers", "command"),
    "goose": ("extensions", "cmd"),
    "codex": ("mcp_servers", "command"),
    "pi": ("mcpServers", "command"),
    "generic": ("mcpServers", "command"),
}
OTHERS = {".json": '{"kept": {"a": 1}}', ".yaml": "kept: {a: 1}\n", ".toml": "[kept]\na = 1\n"}


def parsed(text: str, kind: str) -> dict[str, Any]:
    readers: dict[str, Callable[[str], Any]] = {".json": json.loads, ".yaml": yaml.safe_load, ".toml": tomllib.loads}
    return dict(readers[kind](text))


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("name", SPELT)
def test_every_client_finds_the_server_as_it_spells_it_beside_what_it_had(
    name: str, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert set(SPELT) == set(CLIENTS)
    client, launch = CLIENTS[name], Launch("/abs/sbx", ("--mcp",), {"SBX_HOME": "/h"})
    place, program = SPELT[name]
    printed = parsed(snippet(client, launch), Path(client.user_file).suffix or ".json")
    assert printed[place]["sbx"][program] == "/abs/sbx" and printed[place]["sbx"]["args"] == ["--mcp"]
    if not (client.project_file if scope == "project" else client.user_file):
        with pytest.raises(UsageError, match="has no file"):
            client.file(scope, tmp_path)
        return
    file = client.file(scope, tmp_path)
    assert file.is_relative_to(tmp_path)
    with pytest.raises(NotFound, match="does not name"):
        configured(client, file)
    assert write(client, file, launch) is None
    file.write_text(OTHERS[file.suffix])
    backup = write(client, file, launch)
    assert backup is not None and backup.read_text() == OTHERS[file.suffix]
    assert configured(client, file) == launch
    assert parsed(file.read_text(), file.suffix) == {**printed, "kept": {"a": 1}}


def test_clients_are_told_of_the_server_and_what_was_in_their_files_stays(tmp_path: Path) -> None:
    sbx = Sbx(tmp_path)
    theirs = tmp_path / ".mcp.json"
    before = '{"mcpServers": {"other": {"command": "x"}}, "kept": 1}'
    theirs.write_text(before)
    sbx.ok("mcp", "config", "--client", "claude-code", "--scope", "project", "--write")
    written = json.loads(theirs.read_text())
    assert (written["kept"], written["mcpServers"]["other"]) == (1, {"command": "x"})
    server = written["mcpServers"]["sbx"]
    assert Path(server["command"]).is_absolute() and server["args"][-1] == "--mcp"
    assert server["env"]["SBX_HOME"] == str(tmp_path)
    assert (tmp_path / ".mcp.json.sbx-backup").read_text() == before

    codex = tmp_path / ".codex" / "config.toml"
    codex.parent.mkdir()
    codex.write_text("[existing]\na = 1\n")
    sbx.ok("mcp", "config", "--client", "codex", "--write")
    settings = tomllib.loads(codex.read_text())
    assert settings["existing"] == {"a": 1} and settings["mcp_servers"]["sbx"]["args"][-1] == "--mcp"
    # Started as the client would, with next to no environment, it is found where that file says.
    found = {one["name"]: one["status"] for one in sbx("mcp", "doctor", "--client", "codex", "--json").json}
    assert (found["command"], found["start"], found["tools"]) == ("ok", "ok", "ok") and "store" in found, found


def test_a_file_that_cannot_be_understood_is_left_as_it_is(tmp_path: Path) -> None:
    sbx = Sbx(tmp_path)
    theirs = tmp_path / ".mcp.json"
    theirs.write_text("not json {")
    told = sbx("mcp", "config", "--client", "claude-code", "--scope", "project", "--write")
    assert (told.code, theirs.read_text()) == (2, "not json {")
    assert str(theirs) in told.err
    assert list(tmp_path.glob("*backup*")) == []


def test_a_link_stays_one_and_what_was_private_stays_private(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "claude"
    kept.parent.mkdir()
    kept.write_text("{}")
    kept.chmod(0o600)
    link = tmp_path / ".mcp.json"
    link.symlink_to(kept)
    assert write(CLIENTS["claude-code"], link, Launch("/abs/sbx", ("--mcp",), {})) == kept.with_name(
        "claude.sbx-backup"
    )
    assert link.is_symlink() and "sbx" in json.loads(kept.read_text())["mcpServers"]
    assert {one.stat().st_mode & 0o777 for one in kept.parent.iterdir()} == {0o600}
    kept.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="cannot be understood"):
        write(CLIENTS["claude-code"], link, Launch("/abs/sbx", ("--mcp",), {}))
