"""`image ls`."""

from __future__ import annotations

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.core.documents import image_json


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
