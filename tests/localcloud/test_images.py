"""Images built from a Dockerfile in a zip, as real boto3 makes them, and sandboxes made from them."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.localcloud.conformance.scene import BUCKET, IMAGE, Scene, image_request
from tests.localcloud.endpoint import Endpoint, wait_for_state
from tests.support.local_cloud import local_cloud

APP = """\
import http.server, json, os, pathlib
PREFIX = "/aws/lambda-microvms/runtime/v1/"
seen = []
class App(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        name = self.path.removeprefix(PREFIX)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        seen.append([name, json.loads(body or "{}").get("runHookPayload", "")])
        refuses = name == "suspend" and pathlib.Path("/work/refuse").exists()
        self.answer(500 if refuses else 200, b"")
    def do_GET(self):
        if self.path == "/exit":
            os._exit(7)
        told = {"seen": seen, "env": os.environ["GREETING"], "cwd": os.getcwd(), "made": open("/work/made").read()}
        told["image"] = os.environ["AWS_LAMBDA_MICROVM_IMAGE_NAME"]
        self.answer(200, json.dumps(told).encode())
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), App).serve_forever()
"""
DOCKERFILE = """\
# a comment
ARG WHO=world
FROM sbx-base
ENV GREETING="hello ${WHO}" \\
    OTHER=1
WORKDIR /work/app
COPY app.py ./
COPY --chmod=755 tools/ /work/tools/
RUN echo building $GREETING && /work/tools/make > /work/made
EXPOSE 8080
CMD ["python3", "app.py"]
"""
FILES = {"Dockerfile": DOCKERFILE, "app.py": APP, "tools/make": "#!/bin/sh\nprintf made\n"}
HOOKS = {
    "port": 8080,
    "microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 60, "validate": "ENABLED"},
    "microvmHooks": {"run": "ENABLED", "runTimeoutInSeconds": 30, "suspend": "ENABLED", "suspendTimeoutInSeconds": 30},
}
HOOKS["microvmImageHooks"]["validateTimeoutInSeconds"] = 60  # type: ignore[index]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("images")
    with local_cloud(root, "--runtime", "bubblewrap", "--exit-when-idle", "0") as cloud:
        scene = Scene(cloud)
        scene.client("s3").create_bucket(Bucket=BUCKET)
        yield scene


def build(scene: Scene, name: str, files: dict[str, str], *, timeout_s: float = 90, **changes: Any) -> str:
    """Build an image; how that ended."""
    uri = scene.upload(f"{name}.zip", files)
    asked = image_request(name=name, codeArtifact={"uri": uri}, resources=[{"minimumMemoryInMiB": 512}], **changes)
    scene.call("create_microvm_image", **asked)
    deadline = time.monotonic() + timeout_s
    while (state := scene.image_state(name)) == "CREATING":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


def build_log(scene: Scene, name: str) -> str:
    """All that its build said."""
    events = scene.client("logs").filter_log_events(logGroupName=f"/aws/lambda-microvms/{name}")["events"]
    return "\n".join(event["message"] for event in events)


def launch(scene: Scene, name: str, **params: Any) -> Endpoint:
    """A sandbox of an image, once it runs."""
    client = scene.client()
    launched = client.run_microvm(imageIdentifier=IMAGE + name, **params)
    sandbox_id = launched["microvmId"]
    wait_for_state(client, sandbox_id, "RUNNING")
    endpoint = Endpoint(scene.cloud, client, sandbox_id, int(launched["endpoint"].rpartition(":")[2]), "")
    return Endpoint(scene.cloud, client, sandbox_id, endpoint.port, endpoint.mint([{"allPorts": {}}]))


def get(endpoint: Endpoint, path: str = "/") -> httpx.Response:
    """Ask the program of the image."""
    headers = {"X-aws-proxy-auth": endpoint.token}
    return httpx.get(f"https://{endpoint.address}{path}", headers=headers, verify=endpoint.context(), timeout=20)


@pytest.mark.long
def test_an_image_is_built_launched_suspended_and_ended_by_its_program(scene: Scene) -> None:
    assert build(scene, "app", FILES, hooks=HOOKS) == "CREATED", build_log(scene, "app")
    said = build_log(scene, "app")
    assert "building hello world" in said
    version = scene.call("get_microvm_image_version", imageIdentifier=IMAGE + "app", imageVersion="1.0")
    assert (version["state"], version["status"]) == ("SUCCESSFUL", "ACTIVE")
    (row, _) = scene.call("list_microvm_image_builds", imageIdentifier=IMAGE + "app", imageVersion="1.0")["items"]
    detail = scene.call(
        "get_microvm_image_build", imageIdentifier=IMAGE + "app", imageVersion="1.0", buildId=row["buildId"]
    )
    assert detail["snapshotBuild"]["codeInstallSizeInBytes"] > 0

    endpoint = launch(scene, "app", runHookPayload="a payload")
    told = get(endpoint).json()
    assert (told["env"], told["cwd"], told["made"], told["image"]) == ("hello world", "/work/app", "made", "app")
    assert ["run", "a payload"] in told["seen"]
    assert scene.call("get_microvm", microvmIdentifier=endpoint.id)["imageVersion"] == "1.0"
    refused = scene.refusal("delete_microvm_image", imageIdentifier=IMAGE + "app")
    assert refused[2] == "Cannot delete MicroVM image with running MicroVMs"
    scene.call("suspend_microvm", microvmIdentifier=endpoint.id)
    wait_for_state(endpoint.client, endpoint.id, "SUSPENDED")
    scene.call("resume_microvm", microvmIdentifier=endpoint.id)
    wait_for_state(endpoint.client, endpoint.id, "RUNNING")
    assert ["suspend", ""] in get(endpoint).json()["seen"]
    with contextlib.suppress(httpx.RemoteProtocolError):
        # The program's end may be answered with 502, or cut off with everything else.
        assert get(endpoint, "/exit").status_code == 502
    ended = wait_for_state(endpoint.client, endpoint.id, "TERMINATED", 60)
    assert ended["stateReason"] == "Container Stopped with Exit Code: 7"

    scene.call("update_microvm_image_version", imageIdentifier=IMAGE + "app", imageVersion="1.0", status="INACTIVE")
    for more in ({}, {"imageVersion": "1.0"}):
        assert scene.refusal("run_microvm", imageIdentifier=IMAGE + "app", **more)[0] == 404


@pytest.mark.long
def test_what_was_built_before_is_not_built_again_and_a_failure_says_why(scene: Scene) -> None:
    dockerfile = "FROM sbx-base\nRUN echo made-$(cat /proc/sys/kernel/random/uuid) > /work/once\nRUN {}\n"
    assert build(scene, "first", {"Dockerfile": dockerfile.format("cat /work/once")}) == "CREATED"
    assert build(scene, "second", {"Dockerfile": dockerfile.format("cat /work/once; exit 3")}) == "CREATE_FAILED"
    logs = [build_log(scene, name) for name in ("first", "second")]
    once = [re.findall(r"made-[0-9a-f-]{36}", log) for log in logs]
    assert once[0] == once[1] != [], logs
    assert "the first 1 steps were done before" in logs[1]
    assert "exit code 3" in logs[1]
    (row, _) = scene.call("list_microvm_image_builds", imageIdentifier=IMAGE + "second", imageVersion="1.0")["items"]
    assert row["stateReason"] == "The container image build failed."
    refused = scene.refusal("run_microvm", imageIdentifier=IMAGE + "first", runHookPayload="x")
    assert refused[2] == "The run hook must be enabled in the MicroVM image to pass the run hook payload"
    assert json.dumps(scene.call("list_microvm_images", nameFilter="second")["items"], default=str).count("second")


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("404", "Ready hook check failed: the application returned a client error (HTTP 4xx) response"),
        ("503", "Ready hook invocation timed out after PT2S"),
    ],
)
def test_a_ready_hook_that_is_not_ready_fails_the_build(scene: Scene, answer: str, reason: str) -> None:
    app = (
        "import http.server\n"
        "class App(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        f"        self.send_response({answer}); self.end_headers()\n"
        "http.server.HTTPServer(('', 8080), App).serve_forever()\n"
    )
    files = {"Dockerfile": "FROM sbx-base\nCOPY app.py /work/\nCMD python3 /work/app.py\n", "app.py": app}
    hooks = {"port": 8080, "microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 2}}
    name = f"ready-{answer}"
    assert build(scene, name, files, hooks=hooks) == "CREATE_FAILED"
    (row, _) = scene.call("list_microvm_image_builds", imageIdentifier=IMAGE + name, imageVersion="1.0")["items"]
    assert row["stateReason"] == reason


SAYS = """\
import http.server, subprocess
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = subprocess.run(["/bin/sh", "-c", open("/srv/app/look").read()], capture_output=True, text=True)
        body = (said.stdout + said.stderr).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), App).serve_forever()
"""
ANYWHERE = """\
FROM sbx-base
WORKDIR /srv/app
COPY --chmod=755 tool /usr/local/bin/tool
COPY app.py control look ./
RUN useradd -m someone && chown -R someone /srv/app && mkdir /opt/gone && touch /opt/gone/old /etc/made
RUN rm -r /opt/gone && mkdir /opt/gone && touch /opt/gone/new && tool >> /etc/made
RUN mkdir -p pack/DEBIAN pack/usr/share/packed && cp control pack/DEBIAN/ && echo packed > pack/usr/share/packed/file \
    && dpkg-deb -b pack x.deb && dpkg -i x.deb && rm -r pack
USER someone
CMD ["python3", "app.py"]
"""
LOOK = """\
cat /etc/made /usr/share/packed/file; ls /opt/gone; dpkg-query -W -f '${Status}' sbx-packed; echo
grep -c ^someone: /etc/passwd; tool > /usr/bin/mine && cat /usr/bin/mine
"""
CONTROL = "Package: sbx-packed\nVersion: 1\nArchitecture: all\nMaintainer: nobody <a@b.c>\nDescription: nothing\n"


@pytest.mark.long
def test_steps_write_the_whole_root_and_sandboxes_see_and_write_it(scene: Scene) -> None:
    """Facts 3.2, docker build, and 4.2, the app's own root."""
    tool = "#!/bin/sh\necho tooled\n"
    files = {"Dockerfile": ANYWHERE, "control": CONTROL, "tool": tool}
    state = build(scene, "anywhere", {**files, "app.py": SAYS, "look": LOOK})
    said = build_log(scene, "anywhere")
    if "only /work" in said:
        pytest.skip(said.splitlines()[0])
    assert state == "CREATED", said
    expected = ["tooled", "packed", "new", "install", "ok", "installed", "1", "tooled"]
    # Both go on from the same, and neither sees what the other writes.
    for _ in range(2):
        assert get(launch(scene, "anywhere")).text.split() == expected
    assert build(scene, "anywhere-2", {**files, "app.py": SAYS, "look": LOOK}) == "CREATED"
    assert "the first 6 steps were done before" in build_log(scene, "anywhere-2")


@pytest.mark.long
def test_a_build_reaches_what_it_may_and_its_log_says_what_was_refused(scene: Scene) -> None:
    """Fact 5.1: egress omitted is the internet."""
    fetch = "import urllib.request; print(urllib.request.urlopen('http://{}/', timeout=20).read().decode())"
    with served(b"from the host") as port:
        place = f"host.sbx.internal:{port}"
        files = {"Dockerfile": f'FROM sbx-base\nRUN ["python3", "-c", "{fetch.format(place)}"]\n'}
        assert build(scene, "usual", files) == "CREATE_FAILED"
        said = build_log(scene, "usual")
        assert "network: internet" in said and f"{place} was refused" in said, said
        asked = {"network": f"allow={place}"}
        assert scene.raw("PUT", "/sbx/v1/images/allowed/network", asked).status == 200
        assert build(scene, "allowed", files) == "CREATED", build_log(scene, "allowed")
        assert "from the host" in build_log(scene, "allowed")
        assert scene.raw("PUT", "/sbx/v1/images/allowed/network", {"network": "all"}).status == 400


@contextlib.contextmanager
def served(body: bytes) -> Iterator[int]:
    """A server on this machine's loopback; its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_packages_are_installed_in_a_build(scene: Scene) -> None:
    """Fact 3.3: a build reaches package mirrors."""
    steps = "apt-get update -q && apt-get install -y -q hello && apt-get install -y -q --reinstall hello"
    clean = "rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/*"
    python = "python3 -m venv /opt/venv && /opt/venv/bin/pip install -q cowsay"
    look = '["/bin/sh", "-c", "hello && /opt/venv/bin/python -c \'import cowsay\'"]'
    dockerfile = f"FROM sbx-base\nRUN {steps}\nRUN {clean}\nRUN {python}\nRUN {look}\n"
    state = build(scene, "packages", {"Dockerfile": dockerfile}, timeout_s=600)
    said = build_log(scene, "packages")
    if "only /work" in said or "Unable to fetch" in said or "Failed to fetch" in said or not shutil.which("apt-get"):
        pytest.skip("no root of its own, or no packages to be had")
    assert state == "CREATED" and "Hello, world!" in said, said
