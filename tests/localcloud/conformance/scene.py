"""One local cloud with what the checks need in it, and the two forms a check has: a refusal, or a fact that holds."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.localcloud.signed import Reply, send
from tests.support.local_cloud import LocalCloud

ROLE = "arn:aws:iam::000000000000:role/build"
UNKNOWN_VM = "microvm-00000000-0000-0000-0000-000000000000"
CONNECTOR = "arn:aws:lambda:local-1:aws:network-connector:aws-network-connector:"
IMAGE = "arn:aws:lambda:local-1:000000000000:microvm-image:"
MANAGED = "arn:aws:lambda:local-1:aws:microvm-image:al2023-1"
BUCKET = "artifacts"


@dataclass(frozen=True)
class Scene:
    """Clients that check nothing themselves, and what is there to be asked for."""

    cloud: LocalCloud
    kept: dict[str, str] = field(default_factory=dict)

    clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str = "lambda-microvms") -> Any:
        """A real client that sends whatever it is given."""
        if service in self.clients:
            return self.clients[service]
        told = self.cloud.told()
        self.clients[service] = boto3.session.Session().client(
            service,
            endpoint_url=told["endpoint_url"],
            region_name=told["region"],
            aws_access_key_id=told["access_key_id"],
            aws_secret_access_key=told["secret_access_key"],
            config=Config(parameter_validation=False, retries={"max_attempts": 1, "mode": "standard"}),
        )
        return self.clients[service]

    def call(self, operation: str, **params: Any) -> Any:
        """By the client's name of an operation."""
        service = "lambda-core" if "network_connector" in operation else "lambda-microvms"
        return getattr(self.client(service), operation)(**params)

    def refusal(self, operation: str, **params: Any) -> tuple[int, str, str, dict[str, Any]]:
        """Status, code and message of a call that must fail, and the whole answer."""
        try:
            answered = self.call(operation, **params)
        except ClientError as exc:
            error = exc.response
            status = error["ResponseMetadata"]["HTTPStatusCode"]
            return status, error["Error"]["Code"], str(error["Error"].get("Message")), error
        raise AssertionError(f"{operation} was not refused: {answered}")

    def raw(self, method: str, path: str, body: Any = None) -> Reply:
        """A signed request that no client would send."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return send(self.cloud, method, path, content, headers={"Content-Type": "application/json"})

    def run(self, **params: Any) -> str:
        """Launch a sandbox; its id."""
        found: str = self.call("run_microvm", **{"imageIdentifier": IMAGE + "sbx-base-512", **params})["microvmId"]
        return found

    def until(self, ask: Callable[[], str], wanted: str, timeout_s: float = 60.0) -> None:
        """Ask until the answer is the wanted one."""
        deadline = time.monotonic() + timeout_s
        while (seen := ask()) != wanted:
            assert time.monotonic() < deadline, f"{seen}, not {wanted}"
            time.sleep(0.02)

    def vm_state(self, sandbox_id: str) -> str:
        """Of a sandbox."""
        return str(self.call("get_microvm", microvmIdentifier=sandbox_id)["state"])

    def image_state(self, name: str) -> str:
        """Of an image."""
        return str(self.call("get_microvm_image", imageIdentifier=IMAGE + name)["state"])

    def upload(self, key: str, files: Mapping[str, str]) -> str:
        """Put a zip; its URI."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        self.client("s3").put_object(Bucket=BUCKET, Key=key, Body=packed.getvalue())
        return f"s3://{BUCKET}/{key}"


def image_request(**changes: Any) -> dict[str, Any]:
    """A whole request for an image, with some members replaced."""
    asked = {
        "name": "conformance",
        "baseImageArn": MANAGED,
        "buildRoleArn": ROLE,
        "codeArtifact": {"uri": f"s3://{BUCKET}/none.zip"},
    }
    return {**asked, **changes}


@dataclass(frozen=True)
class Refusal:
    """A call that must fail as on the platform. `fact` is the line of the fact sheet; `says` is part of the message."""

    fact: str
    operation: str
    params: Mapping[str, Any]
    status: int
    code: str
    says: str = ""

    @property
    def id(self) -> str:
        """For the list of tests."""
        return f"{self.fact.split(' ', 1)[0]}-{self.operation}-{self.says[:30]}"

    def check(self, scene: Scene) -> None:
        """Make the call."""
        params = {name: scene.kept.get(str(value), value) for name, value in self.params.items()}
        status, code, message, _ = scene.refusal(self.operation, **params)
        assert (status, code) == (self.status, self.code), message
        assert self.says in message


@dataclass(frozen=True)
class Holds:
    """A function that asserts what one line of the fact sheet says."""

    fact: str
    check: Callable[[Scene], None]

    @property
    def id(self) -> str:
        """For the list of tests."""
        return f"{self.fact.split(' ', 1)[0]}-{self.check.__name__}"


FACTS: list[Holds] = []


def fact(line: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Put a function on the list of facts."""

    def add(check: Callable[[Scene], None]) -> Callable[[Scene], None]:
        FACTS.append(Holds(line, check))
        return check

    return add
