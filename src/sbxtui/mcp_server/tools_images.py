"""Tools for images: what sandboxes are made from."""

from __future__ import annotations

from sbxtui.control.api import ControlApi
from sbxtui.core.documents import image_json
from sbxtui.core.errors import NotFound, Unsupported, UsageError
from sbxtui.core.model import ContextKind
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.paging import CURSOR, LIMIT, page
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.services.images import delete


async def list_(call: Call) -> Reply:
    """Images that can be launched, or the platform's base images."""
    plane = await call.services.planes.open(call.services.context)
    found = await (plane.managed_images() if call.args.flag("managed") else plane.images())
    part, more = page(call, found)
    return Reply({"images": [image_json(one) for one in part], **more})


async def inspect(call: Call) -> Reply:
    """One image with its versions."""
    arn = _arn(call)
    plane = await call.services.planes.open(call.services.context)
    image, versions = await plane.image(arn), await plane.image_versions(arn)
    told = [{"version": one.version, "state": one.state, "status": one.status} for one in versions]
    return Reply({**image_json(image), "versions": told})


async def remove(call: Call) -> Reply:
    """Delete an image with all its versions."""
    arn = _arn(call)
    plane = await _plane_for_change(call)
    image = await plane.image(arn)
    if call.args.flag("dry_run"):
        return Reply({"image_arn": arn, "removed": False, "would_remove": image_json(image)})
    await call.confirm(f"delete the image `{image.name}` for good", [f"every version of {arn}"])
    await delete(plane, arn)
    return Reply({"image_arn": arn, "removed": True})


async def prune(call: Call) -> Reply:
    """Delete the account's images that no sandbox was made from."""
    plane = await _plane_for_change(call)
    used = {one.image_arn for one in await plane.list() if not one.state.is_gone}
    unused = [one for one in await plane.images() if one.arn not in used and not one.is_managed]
    arns = [one.arn for one in unused]
    if call.args.flag("dry_run") or not unused:
        return Reply({"removed": [], "would_remove": arns})
    await call.confirm(f"delete {len(arns)} images for good", arns)
    removed = []
    for arn in arns:
        try:
            await delete(plane, arn)
            removed.append(arn)
        except NotFound:
            call.warnings.append(f"{arn} was gone already")
    return Reply({"removed": removed})


async def _plane_for_change(call: Call) -> ControlApi:
    if call.services.context.kind is ContextKind.LOCAL:
        raise Unsupported("the images of the local cloud are part of sbx", hint="nothing has to be removed")
    return await call.services.planes.open_for_change(call.services.context)


def _arn(call: Call) -> str:
    arn = call.args.text("image_arn")
    if not arn.startswith("arn:"):
        raise UsageError(f"`{arn}` is no ARN", hint="`image_list` tells those that there are")
    return arn


_ARN = Param("image_arn", help="ARN of an image", is_required=True, aliases=("reference",))

TOOLS = (
    Tool(
        "image_list",
        Toolset.IMAGES,
        Effect.READS,
        "List images that sandboxes can be made from.",
        list_,
        (Param("managed", Kind.FLAG, "The platform's own base images"), LIMIT, CURSOR),
    ),
    Tool("image_inspect", Toolset.IMAGES, Effect.READS, "One image with its versions.", inspect, (_ARN,)),
    Tool(
        "image_remove",
        Toolset.IMAGES,
        Effect.DESTROYS,
        "Delete an image with all its versions.",
        remove,
        (_ARN, common.CONFIRM, common.DRY_RUN),
    ),
    Tool(
        "image_prune",
        Toolset.IMAGES,
        Effect.DESTROYS,
        "Delete images that no sandbox was made from.",
        prune,
        (common.CONFIRM, common.DRY_RUN),
    ),
)
