"""Starting the program of a job: what to start, as bytes between processes, and the start itself."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

# Linux's limit of one argument or one line of the environment, with its NUL.
_STRING_BYTES_MAX = 128 * 1024
_NOT_THE_PROGRAM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EPERM)
# CPython ignores these, and what is ignored stays so in a program that is started.
_RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
# Where a program finds the file that `Plumbing` was given for it.
SIDE_FD = 3


class SpawnFailed(Exception):
    """The program was not started. `stage` says what was wrong: `program`, `cwd`, `argv` or `spawn`."""

    def __init__(self, stage: str, error_number: int) -> None:
        super().__init__(f"{stage}: {os.strerror(error_number)}")
        self.stage = stage
        self.error_number = error_number


class Spec:
    """What to start. Strings are bytes already; `uid` None keeps the guest's own user.

    `data_bytes` is how much memory each of its processes may have of its own; 0 is no limit.
    """

    __slots__ = ("argv", "cwd", "data_bytes", "env", "gid", "groups", "uid")

    def __init__(
        self,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        *,
        uid: int | None = None,
        gid: int | None = None,
        groups: list[int] | None = None,
        data_bytes: int = 0,
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.data_bytes = data_bytes

    def to_bytes(self) -> bytes:
        """For another process."""
        value = {
            "argv": [part.decode("latin-1") for part in self.argv],
            "env": [[key.decode("latin-1"), value.decode("latin-1")] for key, value in self.env.items()],
            "cwd": self.cwd.decode("latin-1"),
            "uid": self.uid,
            "gid": self.gid,
            "groups": self.groups,
            "data_bytes": self.data_bytes,
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Spec:
        """Undo `to_bytes`."""
        value: dict[str, Any] = json.loads(data)
        return cls(
            [part.encode("latin-1") for part in value["argv"]],
            {key.encode("latin-1"): text.encode("latin-1") for key, text in value["env"]},
            value["cwd"].encode("latin-1"),
            uid=value["uid"],
            gid=value["gid"],
            groups=value["groups"],
            data_bytes=value["data_bytes"],
        )


class Plumbing:
    """What a program's first descriptors are: three files, or a terminal; and perhaps a file as descriptor 3."""

    __slots__ = ("_files", "_side", "_terminal")

    def __init__(self, files: tuple[int, int, int] | None = None, *, terminal: int = -1, side: int = -1) -> None:
        self._files = files
        self._terminal = terminal
        self._side = side

    def actions(self) -> list[tuple[Any, ...]]:
        """For posix_spawn, in order.

        A session leader without a terminal that opens one gets it as its controlling terminal, so nothing needs to run
        between the new session and the program.
        """
        if self._files is None:
            opened: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, _path_of(self._terminal), os.O_RDWR, 0)]
            actions = [*opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
        else:
            actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(self._files)]
        if self._side >= 0:
            actions.append((os.POSIX_SPAWN_DUP2, self._side, SIDE_FD))
        return actions

    def connect(self) -> None:
        """Carry `actions` out in the calling process, which is about to be the program.

        Raises:
            OSError: One failed.
        """
        for action in self.actions():
            match action:
                case (os.POSIX_SPAWN_OPEN, target, path, flags, mode):
                    source = os.open(path, flags, mode)
                case (_, source, target):
                    pass
            os.dup2(source, target)
            # Also where both are one already, which dup2 leaves as it is.
            os.set_inheritable(target, True)

    def check(self) -> None:
        """Open what the program will open: an error then is not taken for one of the program.

        Raises:
            OSError: It cannot be opened.
        """
        if self._files is None:
            os.close(os.open(_path_of(self._terminal), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))


def start(spec: Spec, plumbing: Plumbing, doors: Sequence[int] = ()) -> int:
    """Start the program in a session of its own and return its pid, which the caller must wait for.

    Call it only in a process with one thread: for the moment of the start, its folder and user are the program's.

    Args:
        spec: What to start.
        plumbing: Its first descriptors.
        doors: Descriptors of the `cgroup.procs` of the control groups it is to be in from its first instruction.

    Raises:
        SpawnFailed: It was not started; nothing is left of the attempt.
    """
    _check_lengths(spec)
    _enter_cwd(spec)
    try:
        if doors or spec.data_bytes:
            return _start_limited(spec, plumbing, doors)
        with _as_user(spec):
            plumbing.check()
            return _exec_first(spec, lambda program: _spawn(program, spec, plumbing))
    except OSError as exc:
        raise SpawnFailed("spawn", exc.errno or errno.EIO) from exc
    finally:
        os.chdir("/")


def _spawn(program: bytes, spec: Spec, plumbing: Plumbing) -> int:
    return os.posix_spawn(
        program, spec.argv, spec.env, file_actions=plumbing.actions(), setsid=True, setsigdef=_RESTORED_SIGNALS
    )


def _start_limited(spec: Spec, plumbing: Plumbing, doors: Sequence[int]) -> int:
    """The same by fork and exec, which costs more: only what is already a process can limit itself before it begins."""
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        _become(spec, plumbing, doors, tell)
    os.close(tell)
    with open(told, "rb") as file:  # noqa: PTH123 - a descriptor
        failure = file.read()
    if not failure:
        return pid
    os.waitpid(pid, 0)
    stage, number = failure.split()
    raise SpawnFailed(stage.decode(), int(number))


def _become(spec: Spec, plumbing: Plumbing, doors: Sequence[int], tell: int) -> NoReturn:
    """Be the program, or say into `tell` why not; exec closes it without a word."""
    stage, number = "spawn", errno.ENOMEM
    try:
        for door in doors:
            os.write(door, b"0")
        with _as_user(spec):
            plumbing.check()
            os.setsid()
            for signal_number in _RESTORED_SIGNALS:
                signal.signal(signal_number, signal.SIG_DFL)
            plumbing.connect()
            _exec_first(spec, lambda program: _limit_and_exec(program, spec))
    except SpawnFailed as exc:
        stage, number = exc.stage, exc.error_number
    except OSError as exc:
        number = exc.errno or errno.EIO
    finally:
        os.write(tell, b"%s %d" % (stage.encode(), number))
        os._exit(1)


def _limit_and_exec(program: bytes, spec: Spec) -> NoReturn:
    if spec.data_bytes:
        # As its user, who needs no privilege to lower a limit and may not raise one.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = spec.data_bytes if hard == resource.RLIM_INFINITY else min(spec.data_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    os.execve(program, spec.argv, spec.env)


def _exec_first(spec: Spec, launch: Callable[[bytes], int]) -> int:
    """Launch the first file there is that may be the program.

    Raises:
        SpawnFailed: None can be launched; the reason is the one of the last that was tried.
    """
    reason = errno.ENOENT
    for program in _candidates(spec):
        try:
            return launch(program)
        except ValueError as exc:
            # What cannot be a word or a variable at all.
            raise SpawnFailed("spawn", errno.EINVAL) from exc
        except OSError as exc:
            reason = exc.errno or errno.EIO
            if reason not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                break
    stage = "argv" if reason == errno.E2BIG else "spawn" if reason in _NOT_THE_PROGRAM else "program"
    raise SpawnFailed(stage, reason)


def _candidates(spec: Spec) -> Iterable[bytes]:
    """Where the program may be: a folder of PATH that may not be searched does not hide that it is nowhere."""
    name = spec.argv[0]
    if not name:
        return ()
    if b"/" in name:
        return (name,)
    folders = spec.env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    # The plain calls, here and below: pathlib is a large import for a process this small.
    paths = [os.path.join(folder or b".", name) for folder in folders]  # noqa: PTH118
    return [path for path in paths if os.path.exists(path)]  # noqa: PTH110


@contextmanager
def _as_user(spec: Spec) -> Iterator[None]:
    """For a moment, be the user the program is to run as; the saved id is the way back, and exec closes it."""
    if spec.uid is None:
        yield
        return
    uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    try:
        if spec.groups is not None:
            os.setgroups(spec.groups)
        if spec.gid is not None:
            os.setresgid(spec.gid, spec.gid, gid)
        os.setresuid(spec.uid, spec.uid, uid)
        yield
    finally:
        os.setresuid(uid, uid, uid)
        os.setresgid(gid, gid, gid)
        if spec.groups is not None:
            os.setgroups(groups)


def _enter_cwd(spec: Spec) -> None:
    try:
        os.chdir(spec.cwd)
    except OSError as exc:
        raise SpawnFailed("cwd", exc.errno or errno.EIO) from exc


def _check_lengths(spec: Spec) -> None:
    # Said here, because exec's own answer may be hidden behind what an earlier folder of PATH answered.
    strings = (*spec.argv, *(key + b"=" + value for key, value in spec.env.items()))
    if any(len(text) >= _STRING_BYTES_MAX for text in strings):
        raise SpawnFailed("argv", errno.E2BIG)


def _path_of(terminal: int) -> str:
    try:
        return os.ttyname(terminal)
    except OSError:
        return f"/proc/self/fd/{terminal}"
