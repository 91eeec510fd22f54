"""Images as launches need them: a name's ARN, and the version that would run."""

from __future__ import annotations

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import Conflict, ImageNotFound
from sbxtui.core.model import ImageVersion

_NAMED = 5


async def image_arn(plane: ControlApi, name: str) -> str:
    """The ARN of the account's image `name`; whether it exists is not asked.

    The platform takes image ARNs only, in the colon form.
    """
    context = plane.context
    account_id = context.account_id or await plane.caller_account()
    return f"arn:aws:lambda:{context.region}:{account_id}:microvm-image:{name}"


async def active_version(plane: ControlApi, arn: str) -> ImageVersion:
    """The newest version of an image that can be launched, with its size and hooks.

    Raises:
        ImageNotFound: No such image, or none of its versions is built and active.
    """
    versions = await plane.image_versions(arn)
    usable = [one for one in versions if one.state == "SUCCESSFUL" and one.status == "ACTIVE"]
    if not usable:
        name = arn.rsplit(":", 1)[-1]
        raise ImageNotFound(f"image `{name}` has no version that can be launched", hint="`sbx image ls` lists images")
    return await plane.image_version(arn, max(usable, key=version_number).version)


def version_number(version: ImageVersion) -> tuple[int, ...]:
    """By which versions are older and newer: `10.0` comes after `9.0`."""
    return tuple(int(part) for part in version.version.split(".") if part.isdigit())


async def delete(plane: ControlApi, arn: str) -> None:
    """Delete an image of the account.

    Raises:
        Conflict: Sandboxes of it live; the hint names them. ImageNotFound: It is gone.
    """
    try:
        await plane.delete_image(arn)
    except Conflict as exc:
        raise await with_users(plane, arn, exc) from exc


async def with_users(plane: ControlApi, arn: str, error: Conflict) -> Conflict:
    """The error, with a hint that names the sandboxes for which an image stays, where there are any."""
    live = [one.id for one in await plane.list(image_arn=arn) if not one.state.is_gone]
    if not live:
        return error
    more = f", and {len(live) - _NAMED} more" if len(live) > _NAMED else ""
    hint = f"first remove the sandboxes made from it: {', '.join(live[:_NAMED])}{more}"
    return Conflict(error.message, hint=hint, details=error.details)
