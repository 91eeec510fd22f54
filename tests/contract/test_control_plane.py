"""Our control plane client against the real local cloud: what the table of errors promises is what a server gives."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxtui.control.api import ControlApi, StaticCredentials
from sbxtui.core.errors import AccessDenied, Conflict, ImageNotFound, SandboxNotFound, UsageError
from sbxtui.core.model import Context, ContextKind, ContextName, IdlePolicy, LaunchRequest, SandboxRecord, SandboxState
from tests.support.local_cloud import LocalCloud, local_cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    root: Path = tmp_path_factory.mktemp("cloud")
    with local_cloud(root) as cloud:
        yield cloud


@pytest.fixture
def plane(cloud: LocalCloud) -> ControlApi:
    told = cloud.told()
    context = Context(
        ContextName("local"),
        ContextKind.LOCAL,
        region=told["region"],
        endpoint_url=told["endpoint_url"],
        account_id=told["account_id"],
    )
    keys = StaticCredentials(told["access_key_id"], told["secret_access_key"])
    return ControlApi(context, credentials=keys)


async def _until(plane: ControlApi, sandbox_id: str, *states: SandboxState) -> SandboxRecord:
    async with asyncio.timeout(60):
        while True:
            record = await plane.get(sandbox_id)
            if record.state in states:
                return record
            await asyncio.sleep(0.05)


async def test_a_sandbox_lives_its_life(plane: ControlApi, cloud: LocalCloud) -> None:
    request = LaunchRequest(cloud.image_arn(), idle=IdlePolicy(900, 3_600), max_duration_s=3_600)
    token = str(uuid.uuid4())
    record = await plane.run(request, client_token=token)
    assert (await plane.run(request, client_token=token)).id == record.id
    with pytest.raises(Conflict):
        await plane.run(LaunchRequest(cloud.image_arn()), client_token=token)

    running = await _until(plane, record.id, SandboxState.RUNNING)
    assert running.idle == IdlePolicy(900, 3_600)
    assert running.max_duration_s == 3_600
    assert running.started_at.tzinfo is not None
    assert record.id in {listing.id for listing in await plane.list()}

    minted = await plane.mint_token(record.id, [8080])
    assert minted.value
    assert (await plane.mint_token(record.id, [])).value

    await plane.suspend(record.id)
    await _until(plane, record.id, SandboxState.SUSPENDED)
    await plane.suspend(record.id)
    await plane.resume(record.id)
    await _until(plane, record.id, SandboxState.RUNNING)

    await plane.terminate(record.id)
    await _until(plane, record.id, SandboxState.TERMINATED)
    await plane.terminate(record.id)


async def test_what_does_not_exist_is_not_found(plane: ControlApi, cloud: LocalCloud) -> None:
    missing = f"microvm-{uuid.uuid4()}"
    for call in (plane.get(missing), plane.suspend(missing), plane.resume(missing), plane.mint_token(missing, [8080])):
        with pytest.raises(SandboxNotFound):
            await call
    await plane.terminate(missing)
    no_image = cloud.image_arn("no-such-image")
    with pytest.raises(ImageNotFound):
        await plane.run(LaunchRequest(no_image), client_token=str(uuid.uuid4()))
    with pytest.raises(ImageNotFound):
        await plane.image(no_image)


async def test_base_images_come_in_every_size(plane: ControlApi) -> None:
    images = {image.name: image for image in await plane.images("sbx-base")}
    versions = await plane.image_versions(images["sbx-base-512"].arn)
    version = await plane.image_version(images["sbx-base-512"].arn, versions[0].version)
    assert version.memory_mib == 512
    assert (version.state, version.status) == ("SUCCESSFUL", "ACTIVE")


async def test_a_foreign_key_is_refused(plane: ControlApi, cloud: LocalCloud) -> None:
    told = cloud.told()
    keys = (
        StaticCredentials("AKIDSOMEBODY", told["secret_access_key"]),
        StaticCredentials(told["access_key_id"], "wrong"),
    )
    for pair in keys:
        with pytest.raises(AccessDenied):
            await ControlApi(plane.context, credentials=pair).list()


async def test_the_account_is_told_by_sts_too(plane: ControlApi, cloud: LocalCloud) -> None:
    told = cloud.told()
    context = Context(ContextName("custom"), ContextKind.AWS, region=told["region"], endpoint_url=told["endpoint_url"])
    keys = StaticCredentials(told["access_key_id"], told["secret_access_key"])
    assert await ControlApi(context, credentials=keys).caller_account() == told["account_id"]


async def test_a_request_the_platform_refuses_is_a_usage_error(plane: ControlApi, cloud: LocalCloud) -> None:
    request = LaunchRequest(cloud.image_arn(), egress_connectors=("no-connector",))
    with pytest.raises(UsageError):
        await plane.run(request, client_token=str(uuid.uuid4()))
