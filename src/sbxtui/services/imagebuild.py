"""Building images from a folder with a Dockerfile, and cleaning up what builds leave behind."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.control import imagebuilds
from sbxtui.control.api import ControlApi
from sbxtui.control.cloudlogs import groups_of, is_runtime
from sbxtui.control.extension import ask_local_cloud
from sbxtui.core.egress import parse_network
from sbxtui.core.errors import Conflict, ImageNotFound, NotFound, SbxError, UsageError
from sbxtui.core.model import Context, ContextKind, ImageVersion
from sbxtui.core.text import harmless_line
from sbxtui.services.images import delete, image_arn, version_number, with_users
from sbxtui.services.planes import ControlPlanes

DOCKERFILE = "Dockerfile"
MAX_BYTES = 512 << 20
_LOCAL_BUCKET = "sbx-artifacts"
_LOCAL_ROLE = "arn:aws:iam::000000000000:role/sbx-build"
_LEFT_OUT = frozenset({".git"})
_POLL_FIRST_S, _POLL_MAX_S = 0.2, 5.0
_UNDER_WAY = ("PENDING", "IN_PROGRESS")


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What to build: a folder or a zip with a Dockerfile at its root. Empty `bucket` and `role`: the local cloud's own.

    With a `hook_port` the platform calls all hooks of our guest there.
    """

    source: Path
    name: str
    memory_mib: int
    bucket: str = ""
    role: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    hook_port: int = 0


@dataclass(frozen=True, slots=True)
class Built:
    """A version that can be launched."""

    arn: str
    name: str
    version: str
    memory_mib: int


async def build(plane: ControlApi, order: BuildOrder, say: Callable[[str], None]) -> Built:
    """Build a version and wait for it. Cancelling stops waiting; the build goes on.

    Args:
        plane: Where.
        order: What.
        say: Told what the build says, a line at a time, as far as the platform tells it before the end.

    Raises:
        UsageError: There is no Dockerfile, or on AWS no bucket or role; nothing was begun.
        SbxError: It failed; the message has the platform's reason.
    """
    archive = await asyncio.to_thread(packed, order.source)
    bucket, role = _place_of(plane, order)
    arn = await image_arn(plane, order.name)
    bases = await plane.managed_images()
    if not bases:
        raise NotFound("the platform lists no base image", hint="`sbx image ls --managed` lists them")
    key = f"{order.name}/{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}.zip"
    is_local = plane.context.kind is ContextKind.LOCAL
    uri = await imagebuilds.upload(plane, bucket, key, archive, makes_bucket=is_local)
    request = imagebuilds.ImageRequest(
        arn, order.name, uri, bases[0].arn, role, order.memory_mib, order.env, order.hook_port
    )
    log = _BuildLog(plane, order.name, say)
    await log.skip()
    version = await imagebuilds.begin(plane, request, is_new=not await _exists(plane, arn))
    await _until_built(plane, arn, version, log)
    return Built(arn, order.name, version, order.memory_mib)


async def set_network(planes: ControlPlanes, context: Context, image: str, network: str) -> None:
    """Settle what the next build of an image may reach: `none`, `internet` or `allow=RULE,…`.

    Raises:
        UsageError: It is no network, or one that builds on AWS cannot have.
    """
    policy = parse_network(network)
    if context.kind is ContextKind.LOCAL:
        cloud = await planes.local_cloud()
        await ask_local_cloud(cloud, "PUT", f"/images/{image}/network", body={"network": policy.text})
    elif not policy.is_internet:
        raise UsageError(
            f"a build on AWS reaches the internet, and cannot be held to `{policy.text}`",
            hint="leave `--network` out, or build in the local context",
        )


async def to_prune(plane: ControlApi, *, keep: int) -> list[ImageVersion]:
    """Versions nobody will miss: those whose build failed, and of the others of an image all but the newest `keep`."""
    found: list[ImageVersion] = []
    for image in await plane.images():
        versions = sorted(await plane.image_versions(image.arn), key=version_number, reverse=True)
        good = [one for one in versions if one.state == "SUCCESSFUL"]
        found += [one for one in versions if one.state == "FAILED"] + good[keep:]
    return found


async def remove(plane: ControlApi, version: ImageVersion) -> None:
    """Delete a version; the last one goes with its image.

    Raises:
        Conflict: Sandboxes of it live. ImageNotFound: It is gone.
    """
    left = [one for one in await plane.image_versions(version.arn) if one.state not in ("DELETING", "DELETED")]
    if [one.version for one in left] == [version.version]:
        await delete(plane, version.arn)
        return
    try:
        await imagebuilds.delete_version(plane, version.arn, version.version)
    except Conflict as exc:
        raise await with_users(plane, version.arn, exc) from exc


def packed(source: Path) -> bytes:
    """A folder as a zip, or a zip as it is. Blocking.

    Raises:
        UsageError: It is neither, has no Dockerfile, is too large, or holds what cannot be read or named in a zip.
    """
    hint = "name a folder with a Dockerfile"
    try:
        if source.is_dir():
            return _zip_of(source)
        content = _zip_file(source)
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            names = opened.namelist()
    except (FileNotFoundError, zipfile.BadZipFile) as exc:
        raise UsageError(f"`{source}` is no folder and no zip", hint=hint) from exc
    except OSError as exc:
        raise UsageError(f"`{exc.filename or source}` cannot be read: {exc.strerror or exc}", hint=hint) from exc
    _check(source, has_dockerfile=DOCKERFILE in names, size_bytes=len(content))
    return content


def _zip_file(source: Path) -> bytes:
    info = source.stat()
    if not stat.S_ISREG(info.st_mode):
        # A pipe or a device might be read for ever.
        raise zipfile.BadZipFile
    _check_size(source, info.st_size)
    return source.read_bytes()


def _zip_of(folder: Path) -> bytes:
    files = list(_files(folder))
    size_bytes = sum(path.lstat().st_size for path in files)
    _check(folder, has_dockerfile=(folder / DOCKERFILE).is_file(), size_bytes=size_bytes)
    packed_into = io.BytesIO()
    with zipfile.ZipFile(packed_into, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in files:
            # Times before 1980 cannot be in a zip, and none matters.
            entry = zipfile.ZipInfo(_name_in_zip(path.relative_to(folder)))
            info = path.lstat()
            entry.external_attr = info.st_mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes())
    return packed_into.getvalue()


def _name_in_zip(path: Path) -> str:
    name = path.as_posix()
    if not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name):
        raise UsageError(f"`{harmless_line(name)}` is not UTF-8, and a zip holds no such name", hint="rename it")
    return name


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_cannot_look):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted((*names, *links)):
            path = Path(parent) / name
            if path.is_symlink() or stat.S_ISREG(path.lstat().st_mode):
                yield path


def _cannot_look(exc: OSError) -> None:
    """An image that lacks a folder nobody could look into would be another one than was asked for."""
    raise exc


def _check(source: Path, *, has_dockerfile: bool, size_bytes: int) -> None:
    if not has_dockerfile:
        raise UsageError(f"`{source}` has no {DOCKERFILE} at its root", hint="an image is made by a Dockerfile")
    _check_size(source, size_bytes)


def _check_size(source: Path, size_bytes: int) -> None:
    if size_bytes > MAX_BYTES:
        raise UsageError(
            f"`{source}` is larger than {MAX_BYTES >> 20} MiB", hint="leave out what the Dockerfile does not copy"
        )


def _place_of(plane: ControlApi, order: BuildOrder) -> tuple[str, str]:
    """Bucket and role."""
    if plane.context.kind is ContextKind.LOCAL:
        return order.bucket or _LOCAL_BUCKET, order.role or _LOCAL_ROLE
    if not order.bucket:
        raise UsageError("on AWS an image is built from a bucket of yours", hint="name one with --bucket")
    if not order.role:
        raise UsageError("on AWS an image is built by a role of yours", hint="name one with --role")
    return order.bucket, order.role


async def _exists(plane: ControlApi, arn: str) -> bool:
    try:
        await plane.image(arn)
    except ImageNotFound:
        return False
    return True


async def _until_built(plane: ControlApi, arn: str, version: str, log: _BuildLog) -> None:
    pause_s = _POLL_FIRST_S
    while True:
        seen = await plane.image_version(arn, version)
        has_said = await log.follow()
        if seen.state not in _UNDER_WAY:
            break
        pause_s = _POLL_FIRST_S if has_said else min(pause_s * 1.5, _POLL_MAX_S)
        await asyncio.sleep(pause_s)
    if seen.state == "SUCCESSFUL":
        return
    reasons = {one.reason for one in await plane.image_builds(arn, version) if one.reason}
    name = arn.rsplit(":", 1)[-1]
    why = "; ".join(sorted(reasons)) or f"its state is {seen.state}"
    raise SbxError(
        f"image `{name}` version {version} was not built: {why.rstrip('.')}",
        hint=f"what the build said is above; `sbx image rm {name} --version {version}` forgets it",
        details={"arn": arn, "version": version, "reasons": sorted(reasons)},
    )


class _BuildLog:
    """What a build says, in the streams that were not there before it."""

    def __init__(self, plane: ControlApi, image: str, say: Callable[[str], None]) -> None:
        self._plane = plane
        self._groups = groups_of(image)
        self._say = say
        self._old: set[tuple[str, str]] = set()
        self._marks: dict[tuple[str, str], str] = {}

    async def skip(self) -> None:
        """What is there now is of others."""
        self._old = set(await self._streams())

    async def follow(self) -> bool:
        """Tell what is new; whether there was anything."""
        has_said = False
        for group, stream in await self._streams():
            if (group, stream) not in self._old:
                has_said = await self._read(group, stream) or has_said
        return has_said

    async def _streams(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for group in self._groups:
            try:
                found += [(group, name) for name in await self._plane.log_streams(group) if not is_runtime(name)]
            except NotFound:
                continue
        return found

    async def _read(self, group: str, stream: str) -> bool:
        parameters = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
        has_said = False
        while True:
            token = self._marks.get((group, stream))
            answer = await self._plane.log_call("GetLogEvents", parameters | ({"nextToken": token} if token else {}))
            for event in answer.get("events", ()):
                has_said = True
                self._say(str(event.get("message", "")).rstrip("\n"))
            following = str(answer.get("nextForwardToken") or "")
            if not following or following == token:
                return has_said
            self._marks[group, stream] = following
