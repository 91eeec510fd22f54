"""What a caller may ask of a job: checked once, here, with an error for every way to ask wrongly."""

from __future__ import annotations

import grp
import hashlib
import json
import os
import posixpath
import pwd
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sbxguest import boundary, wire
from sbxguest.app import WireError
from sbxguest.joblimits import NO_LIMITS, Limits
from sbxguest.spawn import Spec
from sbxguest.state import GuestState
from sbxguest.terminal import Size

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXT_MAX = 256
_SHOWN_ARGV_MAX = 4096
_TERM = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_TERM_DEFAULT = "xterm-256color"
_SIZE_MAX = 10_000
_LIMIT_RANGES = {"pids": (1, 4_194_304), "memory_mib": (4, 2**40), "cpus": (0.01, 4096)}
_TOLD_LIMITS = {"SBX_MEMORY_MIB": "memory_mib", "SBX_VCPUS": "vcpus"}
# Which sandbox one is in, for bash, dash and their like; what anybody sets, or a start-up file does, comes before it.
_PROMPT = r"$SBX_SANDBOX:$PWD\$ "


@dataclass(frozen=True, slots=True)
class Tty:
    """The terminal a job is to run on; `term` is its TERM."""

    size: Size
    term: str


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A checked request for a job. `argv` is what runs, `shell` the line it was made from (or empty).

    `digest` tells the same request from another one; `timeout_s` 0 means none.
    """

    id: str
    digest: str
    argv: tuple[str, ...]
    shell: str = ""
    cwd: str = ""
    env: Mapping[str, str] | None = None
    user: str = ""
    has_stdin: bool = False
    timeout_s: float = 0.0
    kill_grace_s: float = wire.KILL_GRACE_S
    is_hold: bool = False
    is_killed_on_disconnect: bool = False
    ring_bytes: int = wire.RING_BYTES
    actor: str = ""
    label: str = ""
    tty: Tty | None = None
    limits: Limits = NO_LIMITS
    # A line of a pseudo-shell: its shell's name, and what it runs with in place of the launch environment.
    shell_name: str = ""
    exact_env: Mapping[str, str] | None = None
    argv_shown: tuple[str, ...] = ()

    @classmethod
    def loaded(cls, saved: dict[str, Any]) -> JobSpec:
        """Undo `asdict` and JSON."""
        tty = saved["tty"] and Tty(Size(*saved["tty"]["size"]), saved["tty"]["term"])
        tuples = {name: tuple(saved[name]) for name in ("argv", "argv_shown")}
        return cls(**{**saved, **tuples, "tty": tty, "limits": Limits(**saved["limits"])})

    def shown(self) -> dict[str, Any]:
        """What listings say of the request; a long argv is cut, and never the env, which may hold secrets."""
        shown: list[str] = []
        left = _SHOWN_ARGV_MAX
        for part in self.argv_shown or self.argv:
            if len(part) > left:
                shown.append(part[:left] + "…")
                break
            shown.append(part)
            left -= len(part) + 1
        return {
            "id": self.id,
            "argv": shown,
            "shell": posixpath.basename(self.argv[0]) if self.shell else "",
            "shell_name": self.shell_name,
            "cwd": self.cwd,
            "user": self.user,
            "stdin": "tty" if self.tty else "pipe" if self.has_stdin else "none",
            "tty": {**self.tty.size._asdict(), "term": self.tty.term} if self.tty else None,
            "timeout_s": self.timeout_s,
            "kill_grace_s": self.kill_grace_s,
            "log": "hold" if self.is_hold else "ring",
            "on_disconnect": "kill" if self.is_killed_on_disconnect else "keep",
            "ring_bytes": self.ring_bytes,
            "actor": self.actor,
            "label": self.label,
        }


def parse(body: Mapping[str, Any], state: GuestState) -> JobSpec:
    """Check a request body.

    Raises:
        WireError: 400 with a code for what is wrong.
    """
    job_id = body.get("id")
    if not isinstance(job_id, str) or not _ID.fullmatch(job_id):
        raise _bad("bad_id", "`id` must be 1 to 64 of A-Z, a-z, 0-9, _ and -, minted by the caller")
    env = _env(body)
    argv, shell = _command(body, {**base_env(state, "", ""), **env})
    return JobSpec(
        job_id,
        digest_of(body),
        argv,
        shell,
        cwd=_cwd(body, state),
        env=env,
        user=_text(body, "user"),
        has_stdin=_choice(body, "stdin", ("none", "pipe")) == "pipe",
        timeout_s=_number(body, "timeout_s", 0.0, high=366 * 86_400),
        kill_grace_s=_number(body, "kill_grace_s", wire.KILL_GRACE_S, high=3_600),
        is_hold=_choice(body, "log", ("ring", "hold")) == "hold",
        is_killed_on_disconnect=_choice(body, "on_disconnect", ("keep", "kill")) == "kill",
        ring_bytes=int(_number(body, "ring_bytes", wire.RING_BYTES, low=wire.RING_BYTES_MIN, high=wire.RING_BYTES)),
        actor=_text(body, "actor"),
        label=_text(body, "label"),
        tty=_tty(body),
        limits=_limits(body),
    )


def digest_of(body: Mapping[str, Any]) -> str:
    """Tells the same request from another one."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def resolve(spec: JobSpec, state: GuestState) -> Spec:
    """The program to start: user, groups and environment settled.

    Raises:
        WireError: 400 no such user; 501 this guest may not change the user; 413 too long for a program.
    """
    uid, gid, name, home = _user(spec.user, state)
    term = {"TERM": spec.tty.term} if spec.tty else {}
    prompt = {"PS1": _PROMPT} if spec.tty else {}
    env = {**prompt, **base_env(state, name, home, job_id=spec.id), **term, **(spec.env or {})}
    if spec.exact_env is not None:
        # A shell that is older than a secret finds it, too.
        env = {**state.secret_defaults, **state.secret_env, **spec.exact_env, **term}
    is_own = uid == os.geteuid() and gid == os.getegid()
    if not is_own and os.geteuid() != 0:
        raise WireError(
            501,
            "unsupported",
            f"this guest runs as uid {os.geteuid()} and cannot start a job as uid {uid}",
            hint="leave the user out",
        )
    return Spec(
        [_bytes(part, "argv") for part in spec.argv],
        {_bytes(key, "env"): _bytes(value, "env") for key, value in env.items()},
        _bytes(spec.cwd, "cwd"),
        uid=None if is_own else uid,
        gid=None if is_own else gid,
        groups=None if is_own or not _may_set_groups() else _groups(name, gid),
    )


def parse_size(value: object) -> Size:
    """A terminal's `{cols, rows}`.

    Raises:
        WireError: 400 `bad_tty`.
    """
    pair = [value.get(name) for name in Size._fields] if isinstance(value, dict) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= _SIZE_MAX for n in pair):
        raise _bad("bad_tty", f"a terminal's size is `cols` and `rows`, whole numbers from 1 to {_SIZE_MAX}")
    return Size(*pair)


def base_env(state: GuestState, name: str, home: str, *, job_id: str = "") -> dict[str, str]:
    """What every program needs, under the launch environment. Of the guest's own environment only PATH."""
    env = {"PATH": state.settings.path, "LANG": "C.UTF-8"}
    if home := state.settings.job_home or home:
        env["HOME"] = home
    if name:
        env["USER"] = env["LOGNAME"] = name
    given = {key: value.replace("{job}", job_id) for key, value in state.settings.job_env.items()}
    # Hosts say it again with every job, for a sandbox may be renamed; others find at least what it began as.
    given["SBX_SANDBOX"] = state.identity.name or "sandbox"
    # What the kernel tells is the host's in some sandboxes.
    limits = state.settings.limits
    given |= {name: str(limits[key]) for name, key in _TOLD_LIMITS.items() if key in limits}
    return {**env, **given, **state.secret_defaults, **state.launch_env, **state.secret_env}


def check_env(env: object) -> dict[str, str]:
    """An environment given from outside.

    Raises:
        WireError: 400 `bad_env`.
    """
    if not isinstance(env, dict):
        raise _bad("bad_env", "`env` must be an object of strings")
    for key, value in env.items():
        if not isinstance(value, str):
            raise _bad("bad_env", f"the value of env `{key[:_TEXT_MAX]}` must be a string")
        if not key or "=" in key or "\0" in key or "\0" in value:
            raise _bad("bad_env", f"env name `{key[:_TEXT_MAX]}` is empty, or it or its value holds `=` or a NUL byte")
    return dict(env)


def _bad(code: str, message: str) -> WireError:
    return WireError(400, code, message)


def _env(body: Mapping[str, Any]) -> dict[str, str]:
    return check_env(body["env"]) if body.get("env") is not None else {}


def _command(body: Mapping[str, Any], env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    argv, shell = body.get("argv"), body.get("shell")
    if (argv is None) == (shell is None):
        raise _bad("bad_argv", "exactly one of `argv` and `shell` is needed")
    if shell is not None:
        if not isinstance(shell, str) or "\0" in shell:
            raise _bad("bad_argv", "`shell` must be a string without NUL bytes")
        program = "bash" if shutil.which("bash", path=env["PATH"]) else "sh"
        return (program, "-lc", shell), shell
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
        raise _bad("bad_argv", "`argv` must be a list of at least one string")
    if any("\0" in part for part in argv):
        raise _bad("bad_argv", "no part of `argv` can hold a NUL byte")
    return tuple(argv), ""


def _cwd(body: Mapping[str, Any], state: GuestState) -> str:
    cwd = body.get("cwd") or ""
    if not isinstance(cwd, str) or "\0" in cwd or len(cwd) > 4096:
        raise _bad("bad_cwd", "`cwd` must be a path of at most 4096 characters without NUL bytes")
    cwd = posixpath.join(state.workdir, cwd)
    root = state.settings.root
    if not boundary.is_below(cwd, root):
        raise _bad("bad_cwd", f"this sandbox shares the host's files: `cwd` must lie below {root}")
    return cwd


def _tty(body: Mapping[str, Any]) -> Tty | None:
    tty = body.get("tty")
    if tty is None:
        return None
    # Nobody knows the size yet: programs are told so, as on a terminal that never had one.
    is_unknown = isinstance(tty, dict) and (tty.get("cols"), tty.get("rows")) == (0, 0)
    size = Size(0, 0) if is_unknown else parse_size(tty)
    term = tty.get("term") or _TERM_DEFAULT
    if not isinstance(term, str) or not _TERM.fullmatch(term):
        raise _bad("bad_tty", "`term` must be the name of a kind of terminal, like xterm-256color")
    return Tty(size, term)


def _limits(body: Mapping[str, Any]) -> Limits:
    limits = body.get("limits")
    if limits is None:
        return NO_LIMITS
    if not isinstance(limits, dict) or not set(limits) <= set(_LIMIT_RANGES):
        raise _bad("bad_limits", f"`limits` is an object of {', '.join(_LIMIT_RANGES)}")
    numbers = {name: _number(limits, name, 0.0, low=low, high=high) for name, (low, high) in _LIMIT_RANGES.items()}
    pids, memory_mib, cpus = (number or None for number in numbers.values())
    return Limits(pids and int(pids), memory_mib and int(memory_mib), cpus)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if name == "user" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or len(value) > _TEXT_MAX or "\0" in value:
        raise _bad(f"bad_{name}", f"`{name}` must be a string of at most {_TEXT_MAX} characters")
    return value


def _choice(body: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = body.get(name)
    if value is None:
        return choices[0]
    if value not in choices:
        raise _bad(f"bad_{name}", f"`{name}` must be one of {', '.join(choices)}")
    return str(value)


def _number(body: Mapping[str, Any], name: str, default: float, *, high: float, low: float = 0.0) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _bad(f"bad_{name}", f"`{name}` must be a number from {low:g} to {high:g}")
    return float(value)


def _bytes(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise _bad(f"bad_{what}", f"`{what}` holds a character that is no text and no byte") from exc


def _user(user: str, state: GuestState) -> tuple[int, int, str, str]:
    """uid, gid, name (may be empty) and home of `USER` or `USER:GROUP`, by name or number; empty is the default one."""
    user, _, group = user.partition(":")
    uid, gid, name, home = _user_alone(user, state)
    return uid, _group(group) if group else gid, name, home


def _group(group: str) -> int:
    try:
        gid = int(group) if group.isascii() and group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError as exc:
        raise _bad("no_such_user", f"there is no group `{group}` in this sandbox") from exc
    if gid >= 2**32 - 1:
        raise _bad("no_such_user", f"{group} is no group id")
    return gid


def _user_alone(user: str, state: GuestState) -> tuple[int, int, str, str]:
    settings = state.settings
    if user and not (user.isascii() and user.isdecimal()):
        try:
            entry = pwd.getpwnam(user)
        except KeyError as exc:
            raise _bad("no_such_user", f"there is no user `{user}` in this sandbox") from exc
        return entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir
    default_uid = os.geteuid() if settings.job_uid is None else settings.job_uid
    uid = int(user) if user else default_uid
    if uid >= 2**32 - 1:
        raise _bad("no_such_user", f"{user} is no user id")
    is_default = settings.job_gid is not None and uid == settings.job_uid
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        fallback_gid = os.getegid() if uid == os.geteuid() else uid
        return uid, (settings.job_gid or 0) if is_default else fallback_gid, "", state.workdir
    gid = os.getegid() if uid == os.geteuid() else entry.pw_gid
    return uid, (settings.job_gid or 0) if is_default else gid, entry.pw_name, entry.pw_dir


def _groups(name: str, gid: int) -> list[int]:
    return os.getgrouplist(name, gid) if name else []


def _may_set_groups() -> bool:
    try:
        with open("/proc/self/setgroups", encoding="ascii") as file:  # noqa: PTH123 - one short read
            return file.read().strip() != "deny"
    except OSError:
        return True
