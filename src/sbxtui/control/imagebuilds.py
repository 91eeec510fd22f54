"""Having images built, in AWS's spelling: the archive in S3, and what is asked for with it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import ControlUnavailable, NotFound, SbxError

_HOOKS = {"run": 30, "resume": 30, "suspend": 30, "terminate": 30}
_IMAGE_HOOK_S = 300


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What an image is made of. With a `hook_port` all hooks of our guest are called there; 0: none is."""

    arn: str
    name: str
    artifact_uri: str
    base_arn: str
    role_arn: str
    memory_mib: int
    env: Mapping[str, str] = field(default_factory=dict)
    hook_port: int = 0

    def parameters(self) -> dict[str, Any]:
        """As both ways of asking have it."""
        asked: dict[str, Any] = {
            "codeArtifact": {"uri": self.artifact_uri},
            "baseImageArn": self.base_arn,
            "buildRoleArn": self.role_arn,
            "resources": [{"minimumMemoryInMiB": self.memory_mib}],
        }
        if self.env:
            asked["environmentVariables"] = dict(self.env)
        if self.hook_port:
            asked["hooks"] = _hooks(self.hook_port)
        return asked


async def upload(plane: ControlApi, bucket: str, key: str, content: bytes, *, makes_bucket: bool) -> str:
    """Put an archive into a bucket, which is made first where `makes_bucket` says so; its URI.

    Raises:
        NotFound: There is no such bucket. AccessDenied: It is not yours.
    """
    if makes_bucket:
        await plane.object_call("CreateBucket", {"Bucket": bucket})
    try:
        await plane.object_call("PutObject", {"Bucket": bucket, "Key": key, "Body": content})
    except SbxError as exc:
        if exc.details.get("aws_code") != "NoSuchBucket":
            raise
        raise NotFound(f"there is no bucket `{bucket}`", hint="make it, or name another with --bucket") from exc
    return f"s3://{bucket}/{key}"


async def begin(plane: ControlApi, request: ImageRequest, *, is_new: bool) -> str:
    """Have a version built, the first one of an image or a further one; its number, as `1.0`.

    Raises:
        Conflict: Another one is being built. QuotaExceeded: There are too many.
        UsageError: The platform cannot take it; nothing is built.
    """
    # A token that was used before an image was deleted may leave the next one of the name unfinished for hours.
    parameters = {**request.parameters(), "clientToken": str(uuid.uuid4())}
    if is_new:
        answer = await plane.image_call("CreateMicrovmImage", {"name": request.name, **parameters}, target=request.arn)
    else:
        parameters["imageIdentifier"] = request.arn
        answer = await plane.image_call("UpdateMicrovmImage", parameters, target=request.arn)
    if not (version := str(answer.get("imageVersion") or "")):
        raise ControlUnavailable(f"nobody says which version of image `{request.name}` is built", hint="try again")
    return version


async def delete_version(plane: ControlApi, arn: str, version: str) -> None:
    """Delete a version of an image.

    Raises:
        ImageNotFound: There is none. Conflict: Sandboxes of it live. UsageError: It is the last one.
    """
    parameters = {"imageIdentifier": arn, "imageVersion": version}
    await plane.image_call("DeleteMicrovmImageVersion", parameters, target=f"{arn} {version}")


def _hooks(port: int) -> dict[str, Any]:
    image = {name: "ENABLED" for name in ("ready", "validate")}
    image_s = {f"{name}TimeoutInSeconds": _IMAGE_HOOK_S for name in image}
    # Left out, they are one second on the platform, which ends sandboxes.
    runtime = {name: "ENABLED" for name in _HOOKS}
    runtime_s = {f"{name}TimeoutInSeconds": seconds for name, seconds in _HOOKS.items()}
    return {"port": port, "microvmImageHooks": {**image, **image_s}, "microvmHooks": {**runtime, **runtime_s}}
