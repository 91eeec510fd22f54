"""Frozen settings: the only reader of the environment and of config files.

Precedence: flag > `SBX_X` > `AGENT_SANDBOX_X` > trusted project file > user `config.toml` > default. Faces lay flags
on top with `dataclasses.replace`; infra outputs come from the store, below all of these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.paths import at_home
from sbxtui.core.values import dataclass
from sbxtui.home import Home
from sbxtui.project import read_project_file

__all__ = ["Home", "Settings", "load", "locate_home"]

_PREFIXES = ("SBX_", "AGENT_SANDBOX_")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


UI_THEMES = ("dark", "light", "contrast", "terminal", "mono")
UI_GLYPHS = ("unicode", "ascii")
WATCH_NOTIFY = ("osc9", "osc777", "bell", "off")


@dataclass(frozen=True, slots=True)
class Ui:
    """The `[ui]` table of config.toml: how the dashboard looks and what it may do. Empty: chosen by the terminal."""

    theme: str = ""
    glyphs: str = ""
    mouse: bool = True
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class WatchFor:
    """The `[watch]` table of config.toml: who is told of trouble: a shell line, and how a terminal is.

    A job that says nothing is trouble after `silent_after_s`, and one that waits for input after `waits_after_s`.
    """

    hook: str = ""
    notify: str = "osc9"
    silent_after_s: float = 600.0
    waits_after_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured, resolved. `sources` names, per field, where a non-default value came from."""

    home: Home
    context: str = ""
    image_arn: str = ""
    execution_role_arn: str = ""
    region: str = ""
    profile: str = ""
    egress_connector: str = ""
    memory_mib: int = 0
    workdir: str = "/work"
    verify_tls: bool = True
    agent_port: int = 8080
    hook_port: int = 9000
    setup_file: str = ""
    seed_state_file: Path = Path("~/.agent_sandbox/state.json")
    seed_infra_state_file: Path = Path("~/.agent_sandbox/infra-state.json")
    mcp_host_paths: tuple[Path, ...] = ()
    mcp_host_path_policy: str = "allowlist"
    mcp_enable_dangerous: bool = False
    mcp_max_output_bytes: int = 1_048_576
    mcp_default_timeout_ms: int = 120_000
    mcp_approval_timeout_ms: int = 45_000
    mcp_toolsets: str = ""
    mcp_approve: str = ""
    time_scale: float = 1.0
    isolation: str = ""
    local_conformance: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    ui: Ui = field(default_factory=Ui)
    watch: WatchFor = field(default_factory=WatchFor)
    sources: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    # What is drawn goes through another program or over a network before it is seen.
    is_far_terminal: bool = False


def load(environ: Mapping[str, str] | None = None, *, cwd: Path | None = None, setup_file: str = "") -> Settings:
    """Resolve settings from the environment, the project file in `cwd` and the user's `config.toml`.

    Args:
        environ: Defaults to this process's environment.
        cwd: Where a project file is looked for; defaults to the working directory.
        setup_file: A project file named by flag; it must exist.

    Raises:
        UsageError: A value cannot be used; says which one and where it stands.
    """
    environ = os.environ if environ is None else environ
    home = locate_home(environ)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    named = setup_file or _lookup(environ, "SETUP")[1]
    project = read_project_file(cwd or _working_folder(), named, home.trusted_file)
    for layer, origin in ((_config_values(home), str(home.config_file)), (project.values, project.origin)):
        for key, value in layer.items():
            values[key] = _convert(key, value, origin)
            sources[key] = origin
    for suffix, key in _VARIABLES.items():
        variable, raw = _lookup(environ, suffix)
        if raw:
            values[key] = _convert(key, raw, variable)
            sources[key] = variable
    is_far = any(environ.get(name) for name in _FAR_TERMINALS)
    return Settings(home=home, sources=sources, notices=project.notices, is_far_terminal=is_far, **values)


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        # Somebody deleted it under us: then there is no project file in it either.
        return Path("/nonexistent")


def locate_home(environ: Mapping[str, str]) -> Home:
    """Where this person's sbx lives: everything under `SBX_HOME`, else the platform's usual folders.

    Raises:
        UsageError: `SBX_HOME` is no absolute path, or without it nobody knows where this person's home is.
    """
    _, chosen = _lookup(environ, "HOME")
    if chosen:
        root = at_home(chosen)
        if not root.is_absolute():
            hint = "give it as a whole path, like /home/you/.sbx"
            raise UsageError(f"SBX_HOME `{chosen}` is relative: it would mean another home in every folder", hint=hint)
        return Home(root / "config", root / "state", root / "cache", root / "logs")
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("sbx", appauthor=False)
    try:
        return Home(dirs.user_config_path, dirs.user_data_path, dirs.user_cache_path, dirs.user_log_path)
    except RuntimeError as exc:
        # A user id without an entry, as containers have.
        hint = "set HOME, or SBX_HOME=DIR to keep everything of sbx there"
        raise UsageError("HOME is not set, and this user has no home folder", hint=hint) from exc


# Suffix of the environment variable → field. SBX_HOME and SBX_SETUP are read before the others.
_VARIABLES = {
    "CONTEXT": "context",
    "IMAGE_ARN": "image_arn",
    "EXECUTION_ROLE_ARN": "execution_role_arn",
    "REGION": "region",
    "EGRESS_CONNECTOR": "egress_connector",
    "WORKDIR": "workdir",
    "VERIFY_TLS": "verify_tls",
    "AGENT_PORT": "agent_port",
    "HOOK_PORT": "hook_port",
    "SETUP": "setup_file",
    "STATE": "seed_state_file",
    "INFRA_STATE": "seed_infra_state_file",
    "MCP_HOST_PATHS": "mcp_host_paths",
    "MCP_HOST_PATH_POLICY": "mcp_host_path_policy",
    "MCP_ENABLE_DANGEROUS": "mcp_enable_dangerous",
    "MCP_MAX_OUTPUT_BYTES": "mcp_max_output_bytes",
    "MCP_DEFAULT_TIMEOUT_MS": "mcp_default_timeout_ms",
    "MCP_APPROVAL_TIMEOUT_MS": "mcp_approval_timeout_ms",
    "MCP_TOOLSETS": "mcp_toolsets",
    "MCP_APPROVE": "mcp_approve",
    "TIME_SCALE": "time_scale",
    "ISOLATION": "isolation",
    "LOCAL_CONFORMANCE": "local_conformance",
}
# What SSH, tmux and screen set.
_FAR_TERMINALS = ("SSH_CONNECTION", "SSH_TTY", "TMUX", "STY")
_NOT_IN_CONFIG = {"is_far_terminal", "setup_file", "seed_state_file", "seed_infra_state_file"}


def _lookup(environ: Mapping[str, str], suffix: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if value := environ.get(prefix + suffix, ""):
            return prefix + suffix, value
    return _PREFIXES[0] + suffix, ""


def _config_values(home: Home) -> dict[str, object]:
    try:
        text = home.config_file.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        raise UsageError(f"cannot read {home.config_file}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"cannot read {home.config_file}: it is not UTF-8") from exc
    # Most have no such file, and every verb would wait for the parser.
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(
            f"{home.config_file} is no valid TOML: {exc}", hint="fix the line, or move the file away"
        ) from exc
    known = {one.name for one in fields(Settings)} - {"home", "sources", "notices"} - _NOT_IN_CONFIG
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(
            f"{home.config_file} sets `{unknown[0]}`, which sbx does not know",
            hint="known: " + ", ".join(sorted(known)),
        )
    return {key: value for key, value in table.items() if key in known}


def _convert(key: str, value: object, origin: str) -> object:
    try:
        return _CONVERTERS.get(key, _text)(value)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"{origin}: `{key}` cannot be {value!r}: {exc}") from exc


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it must be text")
    if "\n" in value or "\0" in value:
        raise ValueError("it must be one line")
    return value


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("write 1 or 0")


def _whole_number(low: int, high: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            raise ValueError("it must be a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"it must be between {low} and {high}")
        return number

    return convert


def _path(value: object) -> Path:
    return at_home(_text(value))


def _paths(value: object) -> tuple[Path, ...]:
    parts = value if isinstance(value, list) else _text(value).split(os.pathsep)
    return tuple(_path(part) for part in parts if part)


def _host_path_policy(value: object) -> str:
    if value not in ("allowlist", "unrestricted"):
        raise ValueError("write allowlist or unrestricted")
    return str(value)


def _workdir(value: object) -> str:
    text = _text(value)
    if not text.startswith("/"):
        raise ValueError("it must be an absolute path inside the sandbox")
    return text


def _time_scale(value: object) -> float:
    scale = float(str(value))
    if not 0 < scale <= 100_000:
        raise ValueError("it must be above 0 and at most 100000")
    return scale


def _string_table(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError("it must be a table of NAME = text")
    return {_text(name): _text(text) for name, text in value.items()}


def _ui(value: object) -> Ui:
    known = {"theme": _one_of(UI_THEMES), "glyphs": _one_of(UI_GLYPHS), "mouse": _flag, "read_only": _flag}
    return Ui(**_converted(value, known))  # type: ignore[arg-type]  # by converter


def _watch(value: object) -> WatchFor:
    known = {
        "hook": _text,
        "notify": _one_of(WATCH_NOTIFY),
        "silent_after_s": _span_s,
        "waits_after_s": _span_s,
    }
    return WatchFor(**_converted(value, known))  # type: ignore[arg-type]  # the same


def _span_s(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise ValueError("write seconds, more than 0")
    return float(value)


def _converted(value: object, known: Mapping[str, Callable[[object], object]]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("it must be a table")
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"it has no `{unknown[0]}`; known: {', '.join(known)}")
    return {name: known[name](one) for name, one in value.items()}


def _one_of(choices: tuple[str, ...]) -> Callable[[object], object]:
    def convert(value: object) -> str:
        if value not in choices:
            raise ValueError("write " + ", ".join(choices))
        return str(value)

    return convert


_port = _whole_number(1, 65_535)
_CONVERTERS: dict[str, Callable[[object], object]] = {
    "workdir": _workdir,
    "verify_tls": _flag,
    "agent_port": _port,
    "hook_port": _port,
    "memory_mib": _whole_number(1, 1_048_576),
    "seed_state_file": _path,
    "seed_infra_state_file": _path,
    "mcp_host_paths": _paths,
    "mcp_host_path_policy": _host_path_policy,
    "mcp_enable_dangerous": _flag,
    "mcp_max_output_bytes": _whole_number(1, 1 << 40),
    "mcp_default_timeout_ms": _whole_number(1, 1 << 40),
    "mcp_approval_timeout_ms": _whole_number(1, 1 << 40),
    "time_scale": _time_scale,
    "local_conformance": _flag,
    "env": _string_table,
    "keys": _string_table,
    "ui": _ui,
    "watch": _watch,
}
