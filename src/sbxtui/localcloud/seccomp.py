"""The system-call filter of a shared-kernel sandbox, built as classic BPF without libseccomp.

Everything not named here is allowed: the filter takes away what widens the kernel's attack surface or reaches
outside the namespaces, and leaves what compilers, package managers, browsers and databases use.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

from sbxtui.core.errors import RuntimeUnavailable

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]. Offsets in bytes, low word first
# (little endian).
_NR, _ARCH, _ARGS = 0, 4, 16
_AUDIT_ARCH_X86_64 = 0xC000_003E
_X32_BIT = 0x4000_0000

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_GREATER_EQUAL = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_ALLOW = 0x7FFF_0000
_KILL_PROCESS = 0x8000_0000
_ERRNO = 0x0005_0000

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
# NEWTIME is 0x80, which is also part of clone's exit signal byte; clone cannot make one, only unshare and clone3 can.
_NAMESPACE_FLAGS = 0x7E02_0000  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET

DENIED_X86_64: dict[str, int] = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "chroot": 161,
    "clock_adjtime": 305,
    "clock_settime": 227,
    "delete_module": 176,
    "fanotify_init": 300,
    "finit_module": 313,
    "fsconfig": 431,
    "fsmount": 432,
    "fsopen": 430,
    "fspick": 433,
    "init_module": 175,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "ioperm": 173,
    "iopl": 172,
    "kcmp": 312,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "lookup_dcookie": 212,
    "mount": 165,
    "mount_setattr": 442,
    "move_mount": 429,
    "name_to_handle_at": 303,
    "nfsservctl": 180,
    "open_by_handle_at": 304,
    "open_tree": 428,
    "open_tree_attr": 467,
    "perf_event_open": 298,
    "pidfd_getfd": 438,
    "pivot_root": 155,
    "process_madvise": 440,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "ptrace": 101,
    "quotactl": 179,
    "quotactl_fd": 443,
    "reboot": 169,
    "request_key": 249,
    "setns": 308,
    "settimeofday": 164,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "umount2": 166,
    "unshare": 272,
    "uselib": 134,
    "userfaultfd": 323,
    "vhangup": 153,
}
# Where all files and processes are one user's: what gives them to another does nothing, and says that it did.
FAKED_X86_64: dict[str, int] = {
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "fchownat": 260,
    "setuid": 105,
    "setgid": 106,
    "setreuid": 113,
    "setregid": 114,
    "setgroups": 116,
    "setresuid": 117,
    "setresgid": 119,
    "setfsuid": 122,
    "setfsgid": 123,
}
_CLONE, _CLONE3, _IOCTL, _SOCKET, _SOCKETPAIR = 56, 435, 16, 41, 53


@dataclass(frozen=True, slots=True)
class _Step:
    code: int
    value: int
    jump_true: int = 0
    jump_false: int = 0


def is_supported() -> bool:
    """Whether the table of this machine's architecture is written and tested."""
    return platform.machine() == "x86_64"


def build_filter(*, fakes_users: bool = False) -> bytes:
    """The filter as an array of `struct sock_filter`, as `bwrap --seccomp` reads it.

    With `fakes_users`, what `FAKED_X86_64` names succeeds without effect, as in a build.

    Raises:
        RuntimeUnavailable: The architecture's table is not tested, so no isolation is claimed on it.
    """
    if not is_supported():
        raise RuntimeUnavailable(
            f"the system-call filter is not proved on {platform.machine()}", hint="use an AWS context on this machine"
        )
    steps = [
        _Step(_LOAD_WORD, _ARCH),
        _Step(_JUMP_EQUAL, _AUDIT_ARCH_X86_64, jump_true=1),
        # 32-bit calls have other numbers: a process that makes one is ended, as it could name any call.
        _Step(_RETURN, _KILL_PROCESS),
        _Step(_LOAD_WORD, _NR),
        _Step(_JUMP_GREATER_EQUAL, _X32_BIT, jump_false=1),
        _refuse(errno.EPERM),
    ]
    for number in sorted(DENIED_X86_64.values()):
        steps += [_Step(_JUMP_EQUAL, number, jump_false=1), _refuse(errno.EPERM)]
    for number in sorted(FAKED_X86_64.values()) if fakes_users else ():
        steps += [_Step(_JUMP_EQUAL, number, jump_false=1), _refuse(0)]
    # clone3 hides its flags behind a pointer; libraries fall back to clone when it does not exist.
    steps += [_Step(_JUMP_EQUAL, _CLONE3, jump_false=1), _refuse(errno.ENOSYS)]
    steps += _when(
        _CLONE, [_load_argument(0), _Step(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, jump_false=1), _refuse(errno.EPERM)]
    )
    steps += _when(_IOCTL, [_load_argument(1), *_refuse_values((_TIOCSTI, _TIOCLINUX), errno.EPERM)])
    steps += _when(_SOCKET, _only_values(0, (_AF_UNIX, _AF_INET, _AF_INET6), errno.EAFNOSUPPORT))
    steps += _when(_SOCKETPAIR, _only_values(0, (_AF_UNIX, _AF_INET, _AF_INET6), errno.EAFNOSUPPORT))
    steps.append(_Step(_RETURN, _ALLOW))
    return b"".join(struct.pack("<HBBI", s.code, s.jump_true, s.jump_false, s.value) for s in steps)


def _refuse(number: int) -> _Step:
    return _Step(_RETURN, _ERRNO | number)


def _load_argument(index: int) -> _Step:
    return _Step(_LOAD_WORD, _ARGS + 8 * index)


def _refuse_values(values: tuple[int, ...], number: int) -> list[_Step]:
    return [step for value in values for step in (_Step(_JUMP_EQUAL, value, jump_false=1), _refuse(number))]


def _only_values(argument: int, values: tuple[int, ...], number: int) -> list[_Step]:
    """Load an argument; fall through behind this block when it is one of `values`, else refuse."""
    count = len(values)
    checks = [_Step(_JUMP_EQUAL, value, jump_true=count - index) for index, value in enumerate(values)]
    return [_load_argument(argument), *checks, _refuse(number)]


def _when(number: int, body: list[_Step]) -> list[_Step]:
    """Run `body` for one call only, with the call's number loaded again behind it."""
    return [_Step(_JUMP_EQUAL, number, jump_false=len(body)), *body, _Step(_LOAD_WORD, _NR)]
