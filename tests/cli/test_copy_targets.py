"""What `cp` does with what is there already on this machine: links, modes, pipes, devices."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

_NULL = os.makedev(1, 3)
_ZERO = os.makedev(1, 5)


def test_a_copy_keeps_what_is_known_of_the_file_it_replaces(sbx: Sbx, app: str, tmp_path: Path) -> None:
    sbx.ok("fs", "write", app, "new", stdin=b"new")
    private, linked, other = tmp_path / "private", tmp_path / "linked", tmp_path / "other"
    private.write_text("old")
    private.chmod(0o600)
    (tmp_path / "link").symlink_to("private")
    sbx.ok("cp", f"{app}:new", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (private.read_text(), stat.S_IMODE(private.stat().st_mode)) == ("new", 0o600)
    linked.write_text("something longer")
    linked.chmod(0o640)
    other.hardlink_to(linked)
    sbx.ok("cp", f"{app}:new", str(linked))
    assert (other.read_text(), other.stat().st_nlink, stat.S_IMODE(other.stat().st_mode)) == ("new", 2, 0o640)
    missing = sbx("cp", f"{app}:missing", str(linked))
    assert (missing.code, other.read_text()) == (4, "new")


def test_what_is_no_file_is_written_into_and_never_replaced(sbx: Sbx, app: str, tmp_path: Path) -> None:
    sbx.ok("fs", "write", app, "new", stdin=b"new")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        sbx.ok("cp", f"{app}:new", str(pipe))
        assert reader.communicate(timeout=60)[0] == b"new"
    assert pipe.is_fifo()
    line = f"{sbx.command} cp {shlex.quote(app)}:new /dev/stdout | cat"
    piped = subprocess.run(["sh", "-c", line], env=sbx.environment(), capture_output=True, timeout=60, check=False)
    assert piped.stdout == b"new", piped.stderr
    with socket.socket(socket.AF_UNIX) as listener:
        # A folder of its own keeps the address short, wherever the tests live.
        descriptor = os.open(tmp_path, os.O_PATH)
        listener.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        refused = sbx("cp", f"{app}:new", str(tmp_path / "socket"))
    assert (refused.code, "socket" in refused.err) == (2, True), refused.err
    assert (tmp_path / "socket").is_socket()
    (tmp_path / "into" / "new").mkdir(parents=True)
    refused = sbx("cp", f"{app}:new", str(tmp_path / "into"))
    assert (refused.code, "a folder is there" in refused.err) == (2, True), refused.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["into", "pipe", "socket"]


@pytest.mark.root
def test_a_device_stays_one_and_is_no_source(sbx: Sbx, app: str, tmp_path: Path) -> None:
    sbx.ok("fs", "write", app, "new", stdin=b"new")
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, _NULL)
        os.mknod(tmp_path / "zero", stat.S_IFCHR | 0o666, _ZERO)
        node.write_bytes(b"")
    except PermissionError:
        pytest.skip("no device nodes can be made and used here")
    sbx.ok("cp", f"{app}:new", str(node))
    assert (stat.S_ISCHR(node.stat().st_mode), node.stat().st_rdev) == (True, _NULL)
    endless = sbx("cp", str(tmp_path / "zero"), f"{app}:zero")
    assert (endless.code, "is a char, not a regular file" in endless.err) == (2, True), endless.err


def test_a_pipe_is_no_source(sbx: Sbx, app: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused = sbx("cp", str(tmp_path / "pipe"), f"{app}:pipe")
    assert (refused.code, "is a fifo, not a regular file" in refused.err) == (2, True), refused.err
