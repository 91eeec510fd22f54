"""A real local cloud process in a folder of a test, and real boto3 clients of it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

START_TIMEOUT_S = 20.0
# A session reads the models of the services once, which is most of a client's price. Making one is not thread-safe.
_session = boto3.session.Session()
_making = threading.Lock()


@dataclass(slots=True)
class LocalCloud:
    """One home's local cloud; `start` and `kill` may be called again and again."""

    root: Path
    sockets: Path
    trees: Path
    options: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    program: tuple[str, ...] = ("sbxtui.localcloud",)

    @property
    def home(self) -> Path:
        """`--home`."""
        return self.root / "state"

    @property
    def cloud_file(self) -> Path:
        """`cloud.json`."""
        return self.home / "local" / "cloud.json"

    @property
    def log_file(self) -> Path:
        """The process's log."""
        return self.root / "logs" / "localcloud.log"

    def command(self) -> list[str]:
        """How the process is started."""
        places = {"--home": self.home, "--trees": self.trees, "--sockets": self.sockets, "--logs": self.root / "logs"}
        flags = [str(part) for pair in places.items() for part in pair]
        return [sys.executable, "-m", *self.program, *flags, *self.options]

    def start(self) -> LocalCloud:
        """Start it and return when `cloud.json` is its own."""
        self.process = subprocess.Popen(self.command(), env={**os.environ, **self.extra_env}, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.told().get("pid") != self.process.pid:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the local cloud did not start:\n{self.log_text()}")
            time.sleep(0.01)
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the process and wait for its end; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process = None
        return code

    def restart(self, number: int = signal.SIGKILL) -> LocalCloud:
        """End it (by default as a crash does) and start it again."""
        self.stop(number)
        return self.start()

    def told(self) -> dict[str, Any]:
        """`cloud.json`, empty while there is none."""
        try:
            found: dict[str, Any] = json.loads(self.cloud_file.read_text())
        except FileNotFoundError:
            return {}
        return found

    def log_text(self) -> str:
        """The log so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def client(self, service: str = "lambda-microvms", **changes: str) -> Any:
        """A real boto3 client with this home's key; `changes` replace arguments."""
        told = self.told()
        arguments = {
            "endpoint_url": told["endpoint_url"],
            "region_name": told["region"],
            "aws_access_key_id": told["access_key_id"],
            "aws_secret_access_key": told["secret_access_key"],
        } | changes
        config = Config(retries={"max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=60)
        with _making:
            return _session.client(service, config=config, **arguments)

    def image_arn(self, name: str = "sbx-base-512") -> str:
        """The ARN of one of its images."""
        told = self.told()
        return f"arn:aws:lambda:{told['region']}:{told['account_id']}:microvm-image:{name}"

    def terminate_all(self) -> None:
        """End every sandbox, so that a test leaves nothing running."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        client = self.client()
        pages = client.get_paginator("list_microvms").paginate()
        ids = [item["microvmId"] for page in pages for item in page["items"] if item["state"] != "TERMINATED"]
        for sandbox_id in ids:
            client.terminate_microvm(microvmIdentifier=sandbox_id)
        deadline = time.monotonic() + START_TIMEOUT_S
        for sandbox_id in ids:
            while client.get_microvm(microvmIdentifier=sandbox_id)["state"] != "TERMINATED":
                if time.monotonic() > deadline:
                    raise AssertionError(f"{sandbox_id} does not end:\n{self.log_text()}")
                time.sleep(0.02)


@contextlib.contextmanager
def local_cloud(
    root: Path, *options: str, env: Mapping[str, str] | None = None, program: tuple[str, ...] = ("sbxtui.localcloud",)
) -> Iterator[LocalCloud]:
    """A started local cloud; on leaving, its sandboxes and itself are ended and its sockets removed."""
    # Socket paths must be short, and as root a dropped uid must reach the trees: pytest's folders are neither.
    sockets = Path(tempfile.mkdtemp(prefix="sbxt-", dir="/tmp"))
    cloud = LocalCloud(root, sockets, shared_trees(), options, env or {}, program=program)
    try:
        cloud.start()
        yield cloud
        cloud.terminate_all()
    finally:
        if cloud.process is not None and cloud.process.poll() is None:
            cloud.stop()
        shutil.rmtree(sockets, ignore_errors=True)


@cache
def shared_trees() -> Path:
    """One for all homes of a test run: sandboxes have folders of their own in it, and the image is copied only once."""
    trees = Path(tempfile.mkdtemp(prefix="sbxt-", dir="/var/tmp"))
    trees.chmod(0o711)
    atexit.register(shutil.rmtree, trees, ignore_errors=True)
    return trees
