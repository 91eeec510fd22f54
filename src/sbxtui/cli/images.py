"""`image ls|build|inspect|rm|prune`."""

from __future__ import annotations

from pathlib import Path

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.envfile import with_own
from sbxtui.control.api import ControlApi
from sbxtui.core.documents import image_json
from sbxtui.core.errors import Conflict, NotFound, SbxError
from sbxtui.core.model import DEFAULT_MEMORY_MIB, ImageVersion
from sbxtui.core.text import counted
from sbxtui.services import imagebuild
from sbxtui.services.images import delete, image_arn


async def ls(call: Call) -> int:
    """List images of the context, or the platform's base images."""
    plane = await call.services.planes.open(call.services.context)
    images = await (plane.managed_images() if call.args.managed else plane.images())
    if call.out.is_json:
        call.out.json([image_json(one) for one in images])
    call.out.table(
        ("NAME", "STATE", "VERSION", "ARN"),
        [(one.name, one.state, one.latest_version or "-", one.arn) for one in images],
        cuts=show.IMAGE_CUTS,
        is_wide=call.args.wide,
        names=[one.arn for one in images],
    )
    return 0


async def build(call: Call) -> int:
    """Build an image and wait for it."""
    args = call.args
    source = Path(args.source or ("guest" if (Path("guest") / imagebuild.DOCKERFILE).is_file() else "."))
    order = imagebuild.BuildOrder(
        source,
        args.name or source.resolve().name.removesuffix(".zip"),
        args.memory or DEFAULT_MEMORY_MIB,
        bucket=args.bucket,
        role=args.role,
        env=with_own(args.env),
        hook_port=call.settings.hook_port if args.hooks else 0,
    )
    plane = await call.services.planes.open_for_change(call.services.context)
    if args.network:
        await imagebuild.set_network(call.services.planes, plane.context, order.name, args.network)
    built = await imagebuild.build(plane, order, call.out.note)
    call.out.result({"name": built.name, "arn": built.arn, "version": built.version, "memory_mib": built.memory_mib})
    call.out.line(built.arn)
    call.out.note(f"built {built.name} version {built.version}: `sbx create --image {built.name}`")
    return 0


async def inspect(call: Call) -> int:
    """All that is known of an image."""
    plane = await call.services.planes.open(call.services.context)
    image = await plane.image(await _arn_of(plane, call.args.image))
    versions = [await _version_json(plane, one) for one in await plane.image_versions(image.arn)]
    call.out.document({**image_json(image), "versions": versions})
    return 0


async def rm(call: Call) -> int:
    """Delete images, or a version of each; those that are not there are told, and hold up no other."""
    plane = await call.services.planes.open_for_change(call.services.context)
    wanted = call.args.image_version
    found: list[tuple[str, str]] = []
    failed: list[SbxError] = []
    for word in call.args.images:
        try:
            arn = await _arn_of(plane, word)
            await (plane.image_version(arn, wanted) if wanted else plane.image(arn))
            found.append((word, arn))
        except NotFound as exc:
            failed.append(exc)
    names = [f"{word} {wanted}".strip() for word, _ in found]
    if found and not call.args.dry_run:
        await call.confirm(f"delete {counted(len(found), 'image')} for good", consequences=names)
        for _, arn in found:
            await (imagebuild.remove(plane, ImageVersion(arn, wanted, "", "")) if wanted else delete(plane, arn))
    if call.out.is_json:
        call.out.json([arn for _, arn in found])
    for name in names:
        call.out.line(name)
        call.out.note(f"{name}: {'would be deleted' if call.args.dry_run else 'deleted'}")
    for problem in failed:
        call.out.error(problem)
    return failed[0].exit_code if failed else 0


async def prune(call: Call) -> int:
    """Delete versions nobody will miss; those that sandboxes are made of stay."""
    plane = await call.services.planes.open_for_change(call.services.context)
    found = await imagebuild.to_prune(plane, keep=call.args.keep)
    words = [f"{one.arn.rsplit(':', 1)[-1]} {one.version}" for one in found]
    deleted: list[str] = []
    if found and not call.args.dry_run:
        question = f"delete {counted(len(found), 'version')} of images"
        await call.confirm(
            question, consequences=[f"{name} ({one.state})" for name, one in zip(words, found, strict=True)]
        )
    for name, one in zip(words, found, strict=True):
        try:
            if not call.args.dry_run:
                await imagebuild.remove(plane, one)
        except Conflict as exc:
            call.out.note(f"{name}: kept: {exc.message}")
            continue
        deleted.append(name)
        call.out.line(name)
    if call.out.is_json:
        call.out.json(deleted)
    call.out.note(f"{counted(len(deleted), 'version')} {'would be ' if call.args.dry_run else ''}deleted")
    return 0


async def _arn_of(plane: ControlApi, word: str) -> str:
    return word if word.startswith("arn:") else await image_arn(plane, word)


async def _version_json(plane: ControlApi, version: ImageVersion) -> dict[str, object]:
    builds = await plane.image_builds(version.arn, version.version)
    return {
        "version": version.version,
        "state": version.state,
        "status": version.status,
        "memory_mib": version.memory_mib,
        "hooks": list(version.hooks),
        "builds": [
            {"id": one.id, "state": one.state, "reason": one.reason or None, "chip": one.chip} for one in builds
        ],
    }
