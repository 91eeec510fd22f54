"""Clients of MicroVMs that others wrote drive the local cloud with nothing but what `sbx local env` says.

Each is of another hand: one on boto3 and httpx, one on boto3 and requests that knows AWS's regions only, and one with
an HTTP stack and signatures of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sbx import Sbx, sbx_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

VMNEST, MICROVM_CTL, CAPO = "vmnest==0.1.2", "microvm-ctl==0.5.0", "capo-lambda-microvms==0.10.0"

VMNEST_FLOW = """\
import asyncio, json, os
from agent_sandbox.sandbox import Sandbox

async def main():
    image = f"arn:aws:lambda:{os.environ['AWS_REGION']}:000000000000:microvm-image:sbx-base-512"
    role = "arn:aws:iam::000000000000:role/r"
    sandbox = await Sandbox.create("theirs", image_arn=image, execution_role_arn=role)
    await sandbox.write_file("/work/a.txt", b"hello")
    said = [(await sandbox.exec("cat", ["/work/a.txt"])).stdout, await sandbox.read_file("/work/a.txt")]
    await sandbox.suspend()
    await sandbox.start()
    said.append((await sandbox.exec("cat", ["/work/a.txt"])).stdout)
    await sandbox.terminate()
    print(json.dumps([one.decode().strip() for one in said]))

asyncio.run(main())
"""
CTL_APP = {
    "Dockerfile": "FROM public.ecr.aws/lambda/microvms:al2023-minimal\n"
    'WORKDIR /work/app\nCOPY . /work/app/\nCMD ["python3", "app.py"]\n',
    "app.py": "from microvm_hooks import HookApp\napp = HookApp()\n"
    "@app.route('POST', '/echo')\ndef echo(body, headers):\n    return 200, {'said': body['say']}\n"
    "app.serve(8080)\n",
}
CTL_FLOW = """\
import json, sys
from microvm.client import lambda_client
from microvm.config import PlaneConfig
from microvm.endpoint import EndpointClient
from microvm.fleet import FleetManager
from microvm.images import ImageBuilder

role = "arn:aws:iam::000000000000:role/r"
config = PlaneConfig(artifact_bucket="theirs", build_role_arn=role)
lambda_client("s3", config.region).create_bucket(Bucket="theirs")
built = ImageBuilder(config).build("their-app", sys.argv[1], memory_mib=512)
manager = FleetManager(config, quota_aware=False)
vm = manager.run("their-app", run_payload="for them")
manager.wait_until(vm.microvm_id, "RUNNING")
endpoint = EndpointClient(config, vm.microvm_id)
endpoint.wait_ready()
said = [endpoint.post("/echo", json={"say": "hello"}).json()["said"]]
manager.suspend(vm.microvm_id)
manager.wait_until(vm.microvm_id, "SUSPENDED")
said.append(endpoint.post("/echo", json={"say": "awake"}).json()["said"])
manager.terminate(vm.microvm_id)
print(json.dumps([*said, built.image_arn, config.region]))
"""
CAPO_FLOW = """\
import asyncio, json, os, ssl, time, urllib.request
from capo_lambda_microvms import AsyncLambdaMicrovmsClient

async def main():
    image = f"arn:aws:lambda:{os.environ['AWS_REGION']}:000000000000:microvm-image:sbx-base-512"
    async with AsyncLambdaMicrovmsClient() as client:
        vm = await client.run_microvm(image)
        identifier = vm["microvm_id"]
        while (await client.get_microvm(identifier))["state"] != "RUNNING":
            await asyncio.sleep(0.1)
        token = await client.create_microvm_auth_token(identifier, 5, [{"port": 8080}])
        request = urllib.request.Request(f"https://{vm['endpoint']}/healthz", headers=token["auth_token"])
        status = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=30).status)
        listed = [one["microvm_id"] async for one in client.iter_list_microvms()]
        await client.suspend_microvm(identifier)
        await client.terminate_microvm(identifier)
        print(json.dumps([status, identifier in listed]))

asyncio.run(main())
"""


@pytest.fixture
def sbx(tmp_path: Path) -> Iterator[Sbx]:
    with sbx_home(tmp_path / "home") as made:
        yield made


def flow(sbx: Sbx, tmp_path: Path, package: str, code: str, *words: str) -> list[object]:
    """Install a client apart from everything else, run a program that uses it, and give back what that printed."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), package]
    if subprocess.run(install, capture_output=True, timeout=200).returncode:
        pytest.skip(f"{package} cannot be had here")
    foreign = ("SBX_", "AGENT_SANDBOX_", "AWS_", "MVM_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env = {**own, **sbx.ok("local", "env", "--json").json, "PYTHONPATH": str(site)}
    line = [sys.executable, "-c", code, *words]
    ran = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert all(one["state"] == "TERMINATED" for one in sbx.ok("ls", "--all", "--json").json)
    printed: list[object] = json.loads(ran.stdout.splitlines()[-1])
    return printed


def test_vmnest_creates_uses_suspends_and_ends_a_sandbox(sbx: Sbx, tmp_path: Path) -> None:
    assert flow(sbx, tmp_path, VMNEST, VMNEST_FLOW) == ["hello", "hello", "hello"]


def test_microvm_ctl_builds_an_image_and_uses_suspends_and_ends_a_sandbox_of_it(sbx: Sbx, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    for name, text in CTL_APP.items():
        (folder / name).write_text(text)
    image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:their-app"
    assert flow(sbx, tmp_path, MICROVM_CTL, CTL_FLOW, str(folder)) == ["hello", "awake", image, "us-east-1"]


def test_capo_creates_reaches_and_ends_a_sandbox(sbx: Sbx, tmp_path: Path) -> None:
    assert flow(sbx, tmp_path, CAPO, CAPO_FLOW) == [200, True]
