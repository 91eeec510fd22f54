"""Frozen settings: the only reader of the environment and of config files.

Precedence: flag > `SBX_X` > `AGENT_SANDBOX_X` > trusted project file > user `config.toml` > default. Flags are laid on top by
the faces with `dataclasses.replace`; everything below them is resolved here, once.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sbxtui.core.errors import SbxError, UsageError

_PREFIXES = ("SBX_", "AGENT_SANDBOX_")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class Home:
    """Where one home keeps everything; two homes never see each other."""

    config_dir: Path
    state_dir: Path
    cache_dir: Path
    log_dir: Path

    @property
    def key(self) -> str:
        """A short name of this home, stable for its path; used for folders outside it."""
        return hashlib.sha256(os.fsencode(self.state_dir)).hexdigest()[:12]

    @property
    def store_file(self) -> Path:
        """The SQLite store."""
        return self.state_dir / "store.db"

    @property
    def bells_dir(self) -> Path:
        """Doorbell sockets of listeners."""
        return self.socket_dir / "bells"

    @property
    def local_dir(self) -> Path:
        """The local cloud's own state: `cloud.json`, `cloud.lock`, keys, its CA, one folder per sandbox."""
        return self.state_dir / "local"

    @property
    def trees_dir(self) -> Path:
        """Sandbox file trees: as root outside every home, so that a dropped uid can reach them."""
        if os.geteuid() == 0:
            return Path("/var/lib/sbx") / self.key
        return self.local_dir / "trees"

    @property
    def socket_dir(self) -> Path:
        """A short folder for unix sockets (their paths end at 108 bytes). Not created here: see `private_dir`."""
        if os.geteuid() == 0:
            return Path("/run/sbx") / self.key
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if runtime and len(runtime) <= 30 and os.access(runtime, os.W_OK):
            return Path(runtime) / f"sbx-{self.key}"
        return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 30 else "/tmp") / f"sbx-{os.geteuid()}-{self.key}"  # noqa: S108 - verified by private_dir


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
    is_debug: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
