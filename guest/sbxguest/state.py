"""What the guest knows of itself: boot id, launch identity, launch environment. Outlives the server process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbxguest.guestlog import GuestLog
    from sbxguest.jobs import JobTable
    from sbxguest.shells import ShellTable
    from sbxguest.tunnel import TunnelTable

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_WORKDIR = "/work"
# In front of the mark of a restore: what was restored goes on as another sandbox.
OTHER_MARK = "other "


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this sandbox is, as the platform's /run hook told it. Empty before that, and for images without hooks."""

    id: str = ""
    name: str = ""
    owner: str = ""
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """The guest's environment, read once by `from_env`."""

    boot_id: str
    port: int = 8080
    hook_port: int = 9000
    workdir: str = DEFAULT_WORKDIR
    root: str = ""
    job_uid: int | None = None
    job_gid: int | None = None
    isolation: str = ""
    limits: Mapping[str, object] = field(default_factory=dict)
    has_hooks: bool = False
    suspend_timeout_s: int = 10
    path: str = DEFAULT_PATH
    job_home: str = ""
    job_env: Mapping[str, str] = field(default_factory=dict)
    has_own_kernel: bool = False
    has_own_clock: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> GuestSettings:
        """Read `AGENTD_*` and `SBX_*`.

        Raises:
            ValueError: A value is not what its name says; the message names it.
        """
        job_uid, job_gid = _number(env, "SBX_JOB_UID"), _number(env, "SBX_JOB_GID")
        port, hook_port = _number(env, "AGENTD_PORT"), _number(env, "AGENTD_HOOK_PORT")
        return cls(
            boot_id=env.get("SBX_BOOT_ID", ""),
            port=8080 if port is None else port,
            hook_port=9000 if hook_port is None else hook_port,
            workdir=env.get("SBX_WORKDIR") or DEFAULT_WORKDIR,
            # Set where the sandbox's files are the host's: nothing above this folder is the sandbox's own.
            root=env.get("SBX_ROOT", ""),
            job_uid=job_uid,
            job_gid=job_uid if job_gid is None else job_gid,
            isolation=env.get("SBX_ISOLATION", ""),
            limits=_object(env, "SBX_LIMITS"),
            has_hooks=env.get("SBX_HOOKS", "") == "1",
            suspend_timeout_s=_number(env, "SBX_SUSPEND_TIMEOUT_S") or 10,
            # The one variable of the image that jobs inherit, as with any container: where its programs are.
            path=env.get("PATH") or DEFAULT_PATH,
            # Set where the user's entry names a home that is not the sandbox's.
            job_home=env.get("SBX_JOB_HOME", ""),
            # What the platform gives every job, as a way out; `{job}` in a value stands for the job's id.
            job_env={key: str(value) for key, value in _object(env, "SBX_JOB_ENV").items()},
            has_own_kernel=env.get("SBX_OWN_KERNEL", "") == "1",
            # The platform's machines; a local cloud says how it isolates, and has everybody's clock.
            has_own_clock="AWS_LAMBDA_MICROVM_IMAGE_ARN" in env and not {"SBX_ISOLATION", "SBX_LIMITS"} & {*env},
        )


class GuestState:
    """The mutable part of the guest's knowledge of itself.

    Args:
        settings: As started.
        keep: Called with the state as JSON after every change, so that a restarted server gets it back.
        saved: What `keep` was last given, or empty.
    """

    def __init__(self, settings: GuestSettings, *, keep: Callable[[bytes], None], saved: bytes = b"") -> None:
        self.settings = settings
        self.boot_id = settings.boot_id
        # Of this very process, so that hosts notice a restart.
        self.server_id = os.urandom(8).hex()
        self.identity = Identity()
        self.workdir = settings.workdir
        self.launch_env: dict[str, str] = {}
        # Placeholders, and what leads programs to the certificates that go with them.
        self.secret_env: dict[str, str] = {}
        self.secret_defaults: dict[str, str] = {}
        self.has_run = False
        self._restore_mark = ""
        self._keep = keep
        if saved:
            self._load(json.loads(saved))

    @property
    def is_open(self) -> bool:
        """Whether app requests are served: with hooks enabled, only after /run."""
        return self.has_run or not self.settings.has_hooks

    def take_identity(self, identity: Identity) -> bool:
        """Note what /run said. The first call of a boot wins; a later one changes nothing and returns False."""
        if self.has_run:
            return False
        self.identity = identity
        self.has_run = True
        self._save()
        return True

    def set_launch(self, env: Mapping[str, str], workdir: str, *, keeps_env: bool = False) -> None:
        """Replace the environment every later job starts with, and its default cwd (absolute; empty keeps it).

        With `keeps_env`, what there is stays and `env` goes on top.
        """
        self.launch_env = {**(self.launch_env if keeps_env else {}), **env}
        self.workdir = workdir or self.workdir
        self._save()

    def set_secrets(self, env: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Replace what every later job is told of the sandbox's secrets."""
        self.secret_env, self.secret_defaults = dict(env), dict(defaults)
        self._save()

    def renew_boot(self) -> str:
        """After a fork: a new boot id, so that hosts notice, and a new identity may come. Returns the id.

        Secrets were given to one sandbox, and this is another.
        """
        self.boot_id = new_boot_id()
        self.has_run = False
        self.secret_env, self.secret_defaults = {}, {}
        self._save()
        return self.boot_id

    def note_restore(self, mark: str) -> None:
        """Be another sandbox from now on, if the mark of a restore is new and says so.

        The same one that slept on disk goes on in the same boot: its jobs do, and so do those who follow them.
        """
        if mark.startswith(OTHER_MARK) and mark != self._restore_mark:
            self._restore_mark = mark
            self.identity = Identity()
            self.renew_boot()

    def _save(self) -> None:
        self._keep(
            json.dumps(
                {
                    "boot_id": self.boot_id,
                    "identity": asdict(self.identity),
                    "workdir": self.workdir,
                    "launch_env": self.launch_env,
                    "secrets": [self.secret_env, self.secret_defaults],
                    "has_run": self.has_run,
                    "restore_mark": self._restore_mark,
                }
            ).encode()
        )

    def _load(self, saved: dict[str, object]) -> None:
        identity, launch_env, secrets = saved["identity"], saved["launch_env"], saved["secrets"]
        if not isinstance(identity, dict) or not isinstance(launch_env, dict) or not isinstance(secrets, list):
            raise ValueError("the kept guest state is damaged")
        self.boot_id = str(saved["boot_id"])
        self.identity = Identity(**identity)
        self.workdir = str(saved["workdir"])
        self.secret_env, self.secret_defaults = ({**one} for one in secrets)
        self.launch_env = {str(key): str(value) for key, value in launch_env.items()}
        self.has_run = saved["has_run"] is True
        self._restore_mark = str(saved.get("restore_mark", ""))


@dataclass(frozen=True, slots=True)
class Guest:
    """All that a request handler may use."""

    state: GuestState
    jobs: JobTable
    shells: ShellTable
    tunnels: TunnelTable
    log: GuestLog


def new_boot_id() -> str:
    """A fresh boot id: 32 hex digits."""
    return os.urandom(16).hex()


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{name} must be a number, not `{text[:40]}`")
    return int(text)


def _object(env: Mapping[str, str], name: str) -> dict[str, object]:
    text = env.get(name, "")
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise ValueError(f"{name} is not JSON") from exc
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a JSON object")
    return found
