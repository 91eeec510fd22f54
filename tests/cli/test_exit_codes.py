"""Every exit code scripts rely on, each from a line that ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sbxtui.control.local import find_local_cloud
from sbxtui.core import errors
from sbxtui.settings import load
from tests.support.sbx import Sbx, sbx_home

# Code, and the line's words after `exec app --`: the command's own end is ours.
COMMANDS = [
    (0, ["true"]),
    (1, ["false"]),
    (7, ["sh", "-c", "exit 7"]),
    (126, ["/etc/passwd"]),
    (127, ["no-such-program"]),
    (128 + signal.SIGTERM, ["sh", "-c", "kill -TERM $$"]),
    (128 + signal.SIGKILL, ["sh", "-c", "kill -KILL $$"]),
]


@pytest.mark.parametrize(("code", "command"), COMMANDS)
def test_exec_ends_as_its_command_does(sbx: Sbx, app: str, code: int, command: list[str]) -> None:
    assert sbx("exec", app, "--", *command).code == code


def test_a_command_out_of_time_is_124_and_keeps_its_output(sbx: Sbx, app: str) -> None:
    result = sbx("--json", "exec", app, "--timeout", "1", "--", "sh", "-c", "echo begun; sleep 60")
    assert result.code == 124
    assert result.json["stdout"] == "begun\n"
    assert result.json["timed_out"] is True
    assert result.error["code"] == "command_timed_out"


def test_what_sbx_itself_fails_at_is_125(sbx: Sbx, app: str) -> None:
    assert sbx("exec", app, "--no-such-flag", "--", "true").code == 125
    assert sbx("exec", app, "--cwd", "/nowhere", "--", "true").code == 125
    assert "/nowhere" in sbx("exec", app, "--cwd", "/nowhere", "--", "true").err


def test_a_copy_that_left_something_out_is_10_and_says_what(sbx: Sbx, app: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("kept")
    os.mkfifo(tmp_path / "tree" / "pipe")
    result = sbx("--json", "cp", "-r", str(tmp_path / "tree"), f"{app}:tree")
    assert (result.code, result.error["code"]) == (10, "incomplete")
    assert "pipe" in result.err
    assert sbx.ok("fs", "cat", app, "tree/file").out == "kept"


def test_ctrl_c_is_130_and_ends_the_command(sbx: Sbx, app: str) -> None:
    waiting = sbx.spawn("exec", app, "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert waiting.stdout is not None
    pid = waiting.stdout.readline().decode().strip()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(30) == 130
    assert sbx("exec", app, "--", "sh", "-c", f"kill -0 {pid} 2>/dev/null").code == 1
    waiting.communicate()


def test_ctrl_c_while_waiting_is_130(sbx: Sbx, app: str) -> None:
    follower = sbx.spawn("--debug", "wait", app, "--for", "terminated")
    assert follower.stderr is not None
    # The first debug line says that the loop runs and Ctrl-C has its handler.
    follower.stderr.readline()
    follower.send_signal(signal.SIGINT)
    assert follower.wait(30) == 130
    follower.communicate()


def test_a_reader_that_leaves_ends_the_line_quietly(sbx: Sbx, app: str) -> None:
    line = f"{sys.executable} -m sbxtui exec {app} -- yes | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], env=sbx.environment(), capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"y\n"
    assert b"Traceback" not in done.stderr
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.long
def test_an_isolation_is_chosen_for_one_sandbox_or_for_good_and_never_less_than_asked_for(tmp_path: Path) -> None:
    with sbx_home(tmp_path / "home") as own:
        own.ok("create", "kept", "-m", "512")
        given = own.ok("local", "status", "--json").json["runtime"]
        own.ok("--isolation", "process", "create", "bare", "-m", "512")
        words = {row["name"]: row["isolation"] for row in own.ok("ls", "--json").json}
        assert words["bare"] == "process — NOT isolated" != words["kept"]
        assert own.ok("local", "status", "--json").json["runtime"] == given
        # What is asked of a command is asked of its sandbox.
        other = own("--json", "--isolation", ">=bubblewrap", "exec", "bare", "--", "true")
        assert (other.code, "`bare` has `process`" in other.error["message"]) == (125, True)
        refused = own("--json", "--isolation", "process", "create", "x", "--network", "allow=pypi")
        assert (refused.code, "nothing would enforce" in refused.error["message"]) == (9, True)
        cloud = find_local_cloud(load(own.environment(), cwd=tmp_path).home)
        assert cloud is not None
        for why in [*filter(None, [cloud.shortfall.words]), "firecracker: not to be had on this machine", "microvm: "]:
            tier, _, words_of_it = why.partition(": ")
            refused = own("--json", "--isolation", tier, "create", "x")
            assert (refused.code, refused.error["code"]) == (7, "runtime_unavailable")
            assert words_of_it[:60] in refused.error["message"]
        assert own("--isolation", "better", "create", "x").code == 2
        assert own.ok("ls", "-q").out.split() == ["bare", "kept"]
        config = load(own.environment(), cwd=tmp_path).home.config_file
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('isolation = "process"\n')
        own.ok("local", "stop")
        assert own.ok("ls", "-q").out.split() == ["bare", "kept"]
        assert own.ok("local", "status", "--json").json["runtime"] == "process"


@pytest.mark.long
def test_a_full_machine_is_8(tmp_path: Path) -> None:
    with sbx_home(tmp_path / "home") as small:
        home = load(small.environment(), cwd=tmp_path).home
        command = [sys.executable, "-m", "sbxtui.localcloud", "--home", str(home.state_dir), "--trees"]
        command += [str(home.trees_dir), "--sockets", str(home.socket_dir), "--logs", str(home.log_dir)]
        with subprocess.Popen([*command, "--memory-quota-mib", "512"], env=small.environment()) as cloud:
            while find_local_cloud(home) is None:
                assert cloud.poll() is None
            result = small("--json", "create", "big", "--memory", "8192")
            assert (result.code, result.error["code"]) == (8, "quota_exceeded")
            assert small.ok("ls", "--json").json == []
            cloud.terminate()


def test_the_codes_of_the_contract_and_no_others_are_given() -> None:
    def tree(kind: type[errors.SbxError]) -> list[type[errors.SbxError]]:
        # Only those of the contract: a layer may have a private kind of one of them.
        below = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
        return [kind, *(one for child in below for one in tree(child))]

    codes = {kind.exit_code for kind in tree(errors.SbxError)}
    assert codes == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 124, 130, 255}
    words = [kind.code for kind in tree(errors.SbxError)]
    assert len(words) == len(set(words))
