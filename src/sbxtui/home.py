"""Where one home keeps everything on this machine."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from sbxtui.core.errors import SbxError
from sbxtui.core.values import dataclass


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
        # Here for its price: most verbs have come back by now.
        import tempfile

        folder = tempfile.gettempdir()
        return Path(folder if len(folder) <= 30 else "/tmp") / f"sbx-{os.geteuid()}-{self.key}"

    @property
    def trusted_file(self) -> Path:
        """Folders whose project file a person trusts."""
        return self.config_dir / "trusted.json"

    @property
    def config_file(self) -> Path:
        """The person's own settings."""
        return self.config_dir / "config.toml"


def private_dir(path: Path) -> Path:
    """Make `path` a 0700 folder of ours and return it; refuses a link, a file or somebody else's folder.

    Raises:
        SbxError: It cannot be made, or is not ours alone.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as exc:
        raise SbxError(
            f"cannot make the folder {path}: {exc.strerror or exc}",
            hint="set SBX_HOME to a folder you can write",
        ) from exc
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SbxError(f"{path} is not a folder of this user", hint="remove it, or set SBX_HOME to another folder")
    if info.st_mode & 0o077:
        path.chmod(0o700)
    return path
