"""What code in a namespace sandbox tries in order to get out, one row each. Inside, every row must end with
`blocked`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbxtui.localcloud.ownroot import LAYERS
from tests.support.sandboxes import Place, RunningSandbox, make_place, require_own_root, require_runtime, running

CANARY = "canary-3d1f7c"


@dataclass(frozen=True, slots=True)
class Attack:
    """Python that prints nothing when it is blocked: an OSError is as good as an empty answer."""

    name: str
    python: str


READS = tuple(
    Attack(f"read {path}", f"print(open({path!r}).read()[:40])")
    for path in (
        *("/etc/shadow", "/etc/sudoers", "/root/.bashrc", "/root/.aws/credentials", "/proc/kcore", "/proc/1/environ"),
        *("/dev/mem", "/dev/kvm", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/net/tun", "/var/run/docker.sock"),
        *("/sys/kernel/security/lsm", "/proc/kmsg", "/run/secrets/x", "{outside}/credentials"),
    )
)

WRITES = tuple(
    Attack(f"write {path}", f"f = open({path!r}, 'w'); f.write('1'); f.flush(); print('written')")
    for path in (
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches"),
        *("/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/usr/x", "/etc/passwd", "/bin/x", "/lib/x"),
        *("/opt/sbx/guest/sbxboot.py", "/opt/sbx/guest/sbxguest/init.py", "/dev/x"),
        *("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "{outside}/new"),
    )
)


def _call(name: str, number: int, *arguments: int | str) -> Attack:
    return Attack(f"call {name}", f"print(call({number}, {', '.join(map(str, arguments))}))")


CALLS = (
    _call("mount", 165, "s(b'none')", "s(b'/tmp')", "s(b'tmpfs')", 0, 0),
    _call("umount2", 166, "s(b'/proc')", 2),
    _call("pivot_root", 155, "s(b'/tmp')", "s(b'/tmp')"),
    _call("chroot", 161, "s(b'/tmp')"),
    _call("open_tree", 428, -100, "s(b'/')", 1),
    _call("fsopen", 430, "s(b'tmpfs')", 0),
    _call("mount_setattr", 442, -100, "s(b'/')", 0, 0, 0),
    _call("unshare user", 272, 0x10000000),
    _call("unshare mount", 272, 0x20000),
    _call("unshare net", 272, 0x40000000),
    _call("clone with a new user namespace", 56, 0x10000000 | 17, 0, 0, 0, 0),
    _call("clone3", 435, 0, 0),
    _call("setns", 308, 0, 0),
    _call("ptrace attach to the first process", 101, 16, 1, 0, 0),
    _call("ptrace traceme", 101, 0, 0, 0, 0),
    _call("process_vm_readv", 310, 1, 0, 0, 0, 0, 0),
    _call("pidfd_getfd", 438, 0, 0, 0),
    _call("bpf", 321, 0, 0, 0),
    _call("perf_event_open", 298, 0, 0, -1, -1, 0),
    _call("userfaultfd", 323, 1),
    _call("io_uring_setup", 425, 4, "s(bytes(120))"),
    _call("keyctl", 250, 0, -3, 1),
    _call("add_key", 248, "s(b'user')", "s(b'a')", "s(b'b')", 1, -3),
    _call("request_key", 249, "s(b'user')", "s(b'a')", 0, -3),
    _call("init_module", 175, 0, 0, "s(b'')"),
    _call("kexec_load", 246, 0, 0, 0, 0),
    _call("open_by_handle_at", 304, -100, "s(bytes(64))", 0),
    _call("name_to_handle_at", 303, -100, "s(b'/')", "s(bytes(64))", "s(bytes(8))", 0),
    _call("reboot", 169, 0xFEE1DEAD, 672274793, 0, 0),
    _call("settimeofday", 164, "s(bytes(16))", 0),
    _call("sethostname", 170, "s(b'x')", 1),
    _call("swapon", 167, "s(b'/tmp')", 0),
    _call("syslog", 103, 3, "s(bytes(64))", 64),
    _call("iopl", 172, 3),
    _call("x32 getpid", 0x40000000 | 39),
    _call("setuid root", 105, 0),
    _call("quotactl", 179, 0, 0, 0, 0),
    _call("fanotify_init", 300, 0, 0),
)

OTHERS = (
    Attack("raw socket", "print(socket.socket(2, 3, 1))"),
    Attack("packet socket", "print(socket.socket(17, 3))"),
    Attack("netlink socket", "print(socket.socket(16, 3))"),
    Attack("vsock", "print(socket.socket(40, 1))"),
    Attack("kernel crypto socket", "print(socket.socket(38, 5))"),
    Attack("bluetooth socket", "print(socket.socket(31, 3))"),
    Attack("host loopback", "print(socket.create_connection(('127.0.0.1', {host_port}), 2))"),
    Attack("host loopback v6", "print(socket.create_connection(('::1', {host_port}), 2))"),
    Attack("outside network", "print(socket.create_connection(('192.0.2.1', 80), 1))"),
    Attack("abstract socket of the host", "c = socket.socket(1); c.connect('\\0sbx-{canary}'); print(c)"),
    Attack("socket file of the host", "c = socket.socket(1); c.connect('{outside}/host.sock'); print(c)"),
    Attack("other sandboxes' files", "print(os.listdir('{trees}'))"),
    Attack(
        "other sandboxes' sockets", "print([p for p in os.listdir('/run/sbx') if p != 'in.sock' and p[0] != '.'] or '')"
    ),
    Attack("processes of the host", "print([p for p in os.listdir('/proc') if p.isdigit() and int(p) > 200] or '')"),
    Attack("paths of the host in command lines", "print('{outside}' in lines() or '')"),
    Attack("canary in command lines and environments", "print('{canary}' in lines() or '')"),
    Attack("signal to a process of the host", "os.kill({host_pid}, 0); print('signalled')"),
    Attack(
        "setuid programs", "print(subprocess.run(['su', '-c', 'id'], stdin=-3, capture_output=True).stdout.decode())"
    ),
    Attack("a device node", "os.mknod('/tmp/dev', 0o60600, os.makedev(8, 0)); print('made')"),
    Attack(
        "capabilities",
        "print([l for l in open('/proc/self/status') if l[:3] == 'Cap' and int(l.split()[1], 16)] or '')",
    ),
    Attack(
        "administering the sandbox",
        "print([l for l in open('/proc/self/status') if l[:6] == 'CapBnd' and int(l.split()[1], 16) >> 21 & 1] or '')",
    ),
    Attack("gaining privileges", "print('NoNewPrivs:\\t1' not in open('/proc/self/status').read() or '')"),
    Attack(
        "root of the first process", "print([n for n in os.listdir('/proc/1/root/') if n in ('home2', 'root')] or '')"
    ),
    Attack("typing into the terminal", "print(fcntl.ioctl(pty.openpty()[1], 0x5412, b'x'))"),
    Attack(
        "files of the host open in the guest", "print([t for t in targets() if t[0] == '/' and t != '/dev/null'] or '')"
    ),
    Attack(
        "sockets of the host open in the first process", "print([t for t in targets(1) if t[:6] == 'socket'] or '')"
    ),
    Attack("a process without the filter", "print([p for p in pids() if 'Seccomp:\t2' not in status(p)] or '')"),
    Attack(
        "a process that may gain privileges", "print([p for p in pids() if 'NoNewPrivs:\t1' not in status(p)] or '')"
    ),
    Attack(
        "a process with capabilities",
        "print([p for p in pids() if 'CapPrm:\t0000000000000000' not in status(p)] or '')",
    ),
    Attack("fewer chances to be killed", "print(os.write(os.open('/proc/self/oom_score_adj', 1), b'-1'))"),
    Attack("descriptors left over in jobs", "print([n for n in os.listdir('/proc/self/fd') if int(n) > 3] or '')"),
    Attack("a name for uid 0", "print(os.stat('/usr').st_uid == 0 or '')"),
)

OPEN_A_DEVICE = Attack(
    "open a device node",
    "os.path.exists('/tmp/dev') or os.mknod('/tmp/dev', 0o60600, os.makedev(8, 0)); print(open('/tmp/dev').read(1))",
)
ATTACKS = (*READS, *WRITES, *CALLS, *OTHERS)

# With a kernel of its own these are answered, by that kernel and about the sandbox alone.
EMULATED = {
    "read /proc/1/environ": "the guest's own settings",
    "call unshare user": "a namespace of its own kernel",
    "call clone with a new user namespace": "a namespace of its own kernel",
    "call process_vm_readv": "of a process inside",
    "call ptrace traceme": "by the one inside that started it",
    "call keyctl": "a keyring of its own kernel",
    "call syslog": "the log of its own kernel",
    "netlink socket": "of its own network",
    "a device node": "a name without a device behind it",
    "capabilities": "the bounding set; none is held",
    "gaining privileges": "not told in its status; setuid programs stay blocked",
    "files of the host open in the guest": "the guest's own log",
    "a process without the filter": "the filter is around the whole kernel",
    "a process that may gain privileges": "not told in its status",
    "a process with capabilities": "the guest's own, over the sandbox",
    "fewer chances to be killed": "a number nobody outside reads",
}

# Where the root is the sandbox's own, this is done in it, and the host's is not touched.
_TO_ITSELF = {
    "read /etc/shadow": "its own, without passwords",
    "write /usr/x": "its own",
    "write /etc/passwd": "its own",
    "write /bin/x": "its own",
    "write /lib/x": "its own",
    "root of the first process": "its own, empty",
}
# In a build there is root, over files of its own alone.
_AS_ROOT = {
    "call setuid root": "says that it did, as all that changes users",
    "capabilities": "over files of its own",
    "a process with capabilities": "over files of its own",
    "a name for uid 0": "its own user's",
}
OWN_ROOT, BUILD = "bubblewrap, own root", "bubblewrap, build"
ANSWERED: Mapping[str, Mapping[str, str]] = {
    "gvisor": EMULATED,
    "bubblewrap": {},
    OWN_ROOT: _TO_ITSELF,
    BUILD: {**_TO_ITSELF, **_AS_ROOT},
}

_PRELUDE = """
import ctypes, fcntl, os, pty, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
s = ctypes.create_string_buffer
def call(number, *arguments):
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    if result == 0 and number == 56: os._exit(0)
    return f'returned {result}' if result >= 0 else ''
def pids():
    return [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]
def status(pid):
    return open(f'/proc/{pid}/status').read()
def targets(*only):
    found = []
    for p in only or pids():
        try: found += [os.readlink(f'/proc/{p}/fd/{n}') for n in os.listdir(f'/proc/{p}/fd')]
        except OSError: pass
    return found
def lines():
    text = ''
    for p in os.listdir('/proc'):
        for name in ('cmdline', 'environ'):
            try: text += open(f'/proc/{p}/{name}').read()
            except OSError: pass
    return text
"""


# A process each, so that none finds what another one left; in a forked one, as a start costs twenty times that.
_EACH = """
import json
def attempt(source):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1)
        os.close(read), os.close(write)
        try: exec(source, globals())
        except BaseException: pass
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(write)
    with open(read, "rb") as said: told = said.read().decode(errors="replace").strip()
    os.waitpid(pid, 0)
    return told
print(json.dumps({name: attempt(source) for name, source in SOURCES.items()}), file=sys.__stdout__)
"""
_AT_ONCE = 25
_CONTROL = "no attack"


@pytest.fixture(scope="module", params=ANSWERED)
def results(request: pytest.FixtureRequest, images_dir: Path) -> Iterator[dict[str, str]]:
    """What every attack printed, run one after another in one sandbox of a tier beside another one."""
    require_runtime(request.param.partition(",")[0], images_dir)
    if "," in request.param:
        require_own_root(images_dir)
    with make_place(images_dir) as place:
        yield asyncio.run(_attack(place, request.param))


async def _attack(place: Place, tier: str) -> dict[str, str]:
    runtime = tier.partition(",")[0]
    if tier == OWN_ROOT:
        (place.spec().sandbox_dir / LAYERS).mkdir(parents=True)
    outside = place.root / "outside"
    outside.mkdir(mode=0o755)
    (outside / "credentials").write_text(CANARY)
    with (
        socket.create_server(("127.0.0.1", 0)) as loopback,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind(f"\0sbx-{CANARY}-{os.getpid()}")
        named.bind(str(outside / "host.sock"))
        (outside / "host.sock").chmod(0o666)
        abstract.listen()
        named.listen()
        words = {
            "outside": str(outside),
            "trees": str(place.root / "t"),
            "canary": f"{CANARY}-{os.getpid()}",
            "host_port": str(loopback.getsockname()[1]),
            "host_pid": str(os.getpid()),
        }
        async with (
            running(place.spec("neighbour", runtime)),
            running(place.spec(runtime=runtime, pids_max=128, is_build=tier == BUILD)) as sandbox,
        ):
            said = {"tier": tier}
            for some in _batched((*ATTACKS, OPEN_A_DEVICE)):
                said |= await _try(sandbox, some, words)
            return said


def _batched(attacks: Sequence[Attack]) -> Iterator[Sequence[Attack]]:
    """As many at a time as a command line holds and a job's time allows."""
    for start in range(0, len(attacks), _AT_ONCE):
        yield attacks[start : start + _AT_ONCE]


async def _try(sandbox: RunningSandbox, attacks: Sequence[Attack], words: Mapping[str, str]) -> dict[str, str]:
    """What each printed, each in a process of its own."""
    sources = {_CONTROL: "print(call(39) == f'returned {os.getpid()}')"}
    for attack in attacks:
        sources[attack.name] = attack.python
        for key, value in words.items():
            sources[attack.name] = sources[attack.name].replace("{" + key + "}", value)
    program = base64.b64encode(f"{_PRELUDE}\nSOURCES = {sources!r}\n{_EACH}".encode()).decode()
    ran = await sandbox.run(f"python3 -I -c 'import base64; exec(base64.b64decode(\"{program}\"))'")
    said = dict(json.loads(ran.out))
    # What blocks everything, and what tries nothing, blocks no attack.
    assert said.keys() == sources.keys() and said.pop(_CONTROL) == "True", ran
    return said


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_on_the_host_is_blocked(attack: Attack, results: dict[str, str]) -> None:
    said = results[attack.name]
    if (why := ANSWERED[results["tier"]].get(attack.name)) is not None:
        assert CANARY not in said, why
        return
    assert said == "", attack.python


def test_nothing_was_written_into_this_machines_own_system(results: dict[str, str]) -> None:
    assert not [path for path in ("/usr/x", "/bin/x", "/lib/x") if Path(path).exists()], results["tier"]


def test_a_device_node_made_inside_opens_no_device(results: dict[str, str]) -> None:
    assert results["open a device node"] == ""
