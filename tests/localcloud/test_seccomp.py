"""The filter, run by a small interpreter of classic BPF as the kernel would."""

from __future__ import annotations

import errno
import struct

import pytest

from sbxtui.localcloud import seccomp

ALLOW, KILL, ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
X86_64, I386, AARCH64 = 0xC000_003E, 0x4000_0003, 0xC000_00B7

if not seccomp.is_supported():
    pytest.skip("the table is written for x86_64", allow_module_level=True)


def run_filter(number: int, *arguments: int, architecture: int = X86_64) -> int:
    """What the filter returns for one call."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *(a & (1 << 64) - 1 for a in padded))
    program = list(struct.iter_unpack("<HBBI", seccomp.build_filter()))
    accumulator, at = 0, 0
    for _ in range(len(program)):
        code, if_true, if_false, value = program[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x} is not one the filter uses")
    raise AssertionError("the filter runs off its end")


@pytest.mark.parametrize("name", sorted(seccomp.DENIED_X86_64))
def test_a_denied_call_is_refused_without_killing_who_made_it(name: str) -> None:
    assert run_filter(seccomp.DENIED_X86_64[name]) == ERRNO | errno.EPERM


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param((0, 0, 0, 0), ALLOW, id="read"),
        pytest.param((59, 0, 0, 0), ALLOW, id="execve"),
        pytest.param((56, 17), ALLOW, id="clone as fork"),
        pytest.param((56, 0x3D0F00), ALLOW, id="clone as thread"),
        pytest.param((56, 0x1000_0000 | 17), ERRNO | errno.EPERM, id="clone with a user namespace"),
        pytest.param((56, 0x0002_0000), ERRNO | errno.EPERM, id="clone with a mount namespace"),
        pytest.param((435,), ERRNO | errno.ENOSYS, id="clone3, whose flags cannot be seen"),
        pytest.param((16, 0, 0x5413), ALLOW, id="ioctl TIOCGWINSZ"),
        pytest.param((16, 0, 0x5412), ERRNO | errno.EPERM, id="ioctl TIOCSTI"),
        pytest.param((16, 0, 0x5412 | 1 << 32), ERRNO | errno.EPERM, id="ioctl TIOCSTI with high bits"),
        pytest.param((16, 0, 0x541C), ERRNO | errno.EPERM, id="ioctl TIOCLINUX"),
        pytest.param((41, 1, 1), ALLOW, id="unix socket"),
        pytest.param((41, 2, 1), ALLOW, id="inet socket"),
        pytest.param((41, 10, 1), ALLOW, id="inet6 socket"),
        pytest.param((41, 16, 3), ERRNO | errno.EAFNOSUPPORT, id="netlink socket"),
        pytest.param((41, 40, 1), ERRNO | errno.EAFNOSUPPORT, id="vsock"),
        pytest.param((41, 38, 5), ERRNO | errno.EAFNOSUPPORT, id="kernel crypto socket"),
        pytest.param((53, 1, 1), ALLOW, id="unix socketpair"),
        pytest.param((53, 16, 1), ERRNO | errno.EAFNOSUPPORT, id="netlink socketpair"),
        pytest.param((0x4000_0000 | 0,), ERRNO | errno.EPERM, id="x32 read"),
        pytest.param((0x4000_0000 | 165,), ERRNO | errno.EPERM, id="x32 mount"),
    ],
)
def test_calls_are_judged_by_their_arguments(call: tuple[int, ...], expected: int) -> None:
    assert run_filter(*call) == expected


@pytest.mark.parametrize("architecture", [I386, AARCH64])
def test_a_call_of_another_architecture_ends_the_process(architecture: int) -> None:
    assert run_filter(0, architecture=architecture) == KILL
