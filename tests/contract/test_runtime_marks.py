"""What hostile code in a sandbox leaves where the host looks: planted links, setuid programs, used up handles, floods.

And the list of all attacks: which of them stands for what a sandbox must not do, tier by tier.
"""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.localcloud.keeper_client import dial_bridge
from tests.contract.test_runtime_attacks import ATTACKS, EMULATED
from tests.contract.test_runtime_limits import HOGS, NOT_ON_GVISOR
from tests.support.sandboxes import Place, RunningSandbox, require_runtime, running

TIERS = ("gvisor", "bubblewrap")
LOG_BYTES = 2 << 20
HANDLES = """python3 -c '
import os
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as exc: print(exc.errno, len(held))'"""
# Into what a job may write of the guest's own output, and into its own.
FLOOD = (
    "for f in /proc/[0-9]*/fd/[12]; do head -c 8M /dev/zero | timeout 1 tr '\\0' x > $f; done 2>/dev/null; echo over"
)


async def _no_setuid_program_works_inside_or_for_somebody_else(sandbox: RunningSandbox) -> None:
    made = await sandbox.run("cp /bin/sh s; chmod 6755 s; ./s -p -c 'id -u'; id -u")
    assert len(set(made.out.split())) == 1, made
    for file in sandbox.spec.sandbox_dir.rglob("*"):
        info = file.lstat()
        is_roots = stat.S_ISREG(info.st_mode) and info.st_mode & stat.S_ISUID and info.st_uid == 0
        assert not is_roots or not sandbox.spec.sandbox_dir.stat().st_mode & 0o001, file


async def _a_link_out_of_the_work_folder_is_not_followed(sandbox: RunningSandbox) -> None:
    await sandbox.run("ln -s / root; ln -s /etc/shadow shadow; ln -s /proc/self proc")
    async with asyncio.timeout(20):
        while (status := await sandbox.keeper.status()).disk_bytes > 32 << 20:
            await asyncio.sleep(0.05)
    assert status.kill_count == 0


async def _used_up_handles_are_the_job_s_own(sandbox: RunningSandbox) -> None:
    ran = await sandbox.run(HANDLES)
    number, held = map(int, ran.out.split())
    assert (number, held < 1 << 20) == (24, True), ran
    assert await sandbox.is_healthy()


async def _a_flood_of_output_fills_no_file_of_the_host(sandbox: RunningSandbox) -> None:
    boot = (await sandbox.hello())["boot_id"]
    order = {"id": "flood", "shell": FLOOD}
    status, reply = await sandbox.request("POST", "/v2/jobs?wait_s=25", order, boot=boot)
    assert (status, json.loads(reply)["exit"]["code"]) == (201, 0), reply[:400]
    logs = sandbox.spec.log_file.parent.glob(f"{sandbox.spec.log_file.name}*")
    assert sum(file.stat().st_size for file in logs) < LOG_BYTES
    assert await sandbox.is_healthy()


async def _a_link_in_the_bridge_s_place_leads_to_no_socket_of_the_host(sandbox: RunningSandbox) -> None:
    folder = sandbox.spec.sandbox_dir.parent / "outside"
    folder.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as hosts:
        hosts.bind(str(folder / "host.sock"))
        hosts.listen()
        hosts.setblocking(False)
        planted = await sandbox.run(f"cd /run/sbx && mv in.sock old && ln -s {folder}/host.sock in.sock")
        if planted.code:
            assert await sandbox.is_healthy()
            return
        with pytest.raises(GuestUnreachable):
            await dial_bridge(sandbox.spec.control_dir, "8080")
        with pytest.raises(BlockingIOError):
            hosts.accept()


# In this order, in one sandbox of each tier: the last may cut it off.
MARKS = {
    "setuid programs made inside": _no_setuid_program_works_inside_or_for_somebody_else,
    "links planted in the work folder": _a_link_out_of_the_work_folder_is_not_followed,
    "all handles": _used_up_handles_are_the_job_s_own,
    "a flood of output": _a_flood_of_output_fills_no_file_of_the_host,
    "a link planted in the control folder": _a_link_in_the_bridge_s_place_leads_to_no_socket_of_the_host,
}


@pytest.mark.user
@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
async def test_what_is_left_where_the_host_looks_harms_nothing(tier: str, place: Place) -> None:
    require_runtime(tier, place.images_dir)
    async with running(place.spec("marks", tier, memory_mib=384)) as sandbox:
        for name, attack in MARKS.items():
            try:
                await attack(sandbox)
            except AssertionError as exc:
                raise AssertionError(f"{tier}: {name}: {exc}") from exc


# What a sandbox must not do, and how the attacks on it begin; hogs are called by the limit they go over.
COVERED = {
    "credentials": ("read /root/.aws/credentials", "read /run/secrets", "read {outside}/credentials"),
    "host files": ("read /etc/shadow", "read /root", "write /usr/x", "write /etc/passwd", "write {outside}"),
    "devices": ("read /dev/mem", "read /dev/kvm", "read /dev/vda", "write /dev/x", "a device node"),
    "sockets": ("read /var/run/docker.sock", "socket file of the host", "abstract socket", "other sandboxes' sockets"),
    "environment": ("read /proc/1/environ", "canary in command lines and environments"),
    "argv": ("paths of the host in command lines", "canary in command lines"),
    "proc": ("read /proc/kcore", "read /proc/kmsg", "write /proc/sysrq-trigger", "processes of the host"),
    "sysctls": ("write /proc/sys/kernel/hostname", "write /proc/sys/vm/drop_caches"),
    "mounts": ("call mount", "call umount2", "call pivot_root", "call open_tree", "call fsopen", "call mount_setattr"),
    "ptrace": ("call ptrace", "call process_vm_readv", "call pidfd_getfd"),
    "keyrings": ("call keyctl", "call add_key", "call request_key"),
    "bpf": ("call bpf", "call perf_event_open"),
    "io_uring": ("call io_uring_setup",),
    "user namespaces": ("call unshare user", "call clone with a new user namespace", "call clone3", "call setns"),
    "raw sockets": ("raw socket", "packet socket", "netlink socket"),
    "vsock": ("vsock",),
    "loopback of the host": ("host loopback", "host loopback v6", "outside network"),
    "symlinks planted in shared folders": ("links planted in the work folder", "a link planted in the control folder"),
    "setuid files": ("setuid programs", "gaining privileges", "setuid programs made inside"),
    "core_pattern as root": ("write /proc/sys/kernel/core_pattern",),
    "signals to host processes": ("signal to a process of the host",),
    "forks": ("pids: fork bomb", "pids: fork bomb of sessions"),
    "memory": ("memory: one process", "memory: many processes"),
    "disk": ("disk: many files", "disk: files without a name", "disk: the control folder"),
    "inodes": ("disk: many empty files",),
    "file handles": ("all handles", "descriptors left over in jobs"),
    "log flood": ("a flood of output",),
}
# Tried by tests of their own.
APART = {"disk: many empty files": "test_a_flood_of_empty_files_is_stopped_as_well"}
# Attack and tier to what is to be expected there; everything else is blocked.
OTHERWISE = {
    **{(name, "gvisor"): f"answered by its own kernel: {why}" for name, why in EMULATED.items()},
    **{(f"{hog.limit}: {hog.name}", "gvisor"): NOT_ON_GVISOR[hog.name] for hog in HOGS if hog.name in NOT_ON_GVISOR},
}


def _names() -> list[str]:
    return [*(one.name for one in ATTACKS), *(f"{hog.limit}: {hog.name}" for hog in HOGS), *MARKS, *APART]


@pytest.mark.parametrize("word", COVERED)
def test_there_is_an_attack_on_everything_a_sandbox_must_not_do(word: str) -> None:
    for beginning in COVERED[word]:
        assert any(name.startswith(beginning) for name in _names()), beginning


def test_every_attack_is_named_once_and_what_is_expected_otherwise_is_of_one() -> None:
    names = _names()
    assert len(names) == len(set(names)) >= 46
    assert {name for name, _ in OTHERWISE} <= set(names)
    source = (Path(__file__).parent / "test_runtime_limits.py").read_text()
    assert all(test in source for test in APART.values())
