"""AWS's answers as our values, once. Text from the cloud is made harmless here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.errors import ControlUnavailable, UsageError
from sbxtui.core.model import (
    IdlePolicy,
    Image,
    ImageBuild,
    ImageVersion,
    LaunchRequest,
    SandboxId,
    SandboxListing,
    SandboxRecord,
    SandboxState,
)
from sbxtui.core.text import harmless_line

Answer = Mapping[str, Any]

_TOKEN_HEADER = "x-aws-proxy-auth"
# The API must name a maximum; a local sandbox without one gets a number no life reaches.
_NO_CAP_S = 366 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_parameters(request: LaunchRequest, client_token: str) -> dict[str, Any]:
    """A launch request in AWS's spelling; what is empty is left out, so that the platform's defaults hold."""
    idle = request.idle
    parameters: dict[str, Any] = {
        "imageIdentifier": request.image_arn,
        "imageVersion": request.image_version,
        "executionRoleArn": request.execution_role_arn,
        "maximumDurationInSeconds": request.max_duration_s,
        "ingressNetworkConnectors": list(request.ingress_connectors),
        "egressNetworkConnectors": list(request.egress_connectors),
        "runHookPayload": request.payload,
        "clientToken": client_token,
    }
    if idle is not None:
        parameters["idlePolicy"] = {
            "maxIdleDurationSeconds": idle.max_idle_s,
            "suspendedDurationSeconds": idle.suspended_s,
            "autoResumeEnabled": idle.auto_resume,
        }
    if request.log_group:
        parameters["logging"] = {"cloudWatch": {"logGroup": request.log_group}}
    return {key: value for key, value in parameters.items() if value not in ("", None, [])}


def port_specifications(ports: Sequence[int], hook_port: int) -> list[dict[str, Any]]:
    """The scope of an endpoint token. No ports means any, but never the hook port: only the platform may call that."""
    if ports:
        return [{"port": port} for port in sorted(set(ports))]
    ranges = ((1, hook_port - 1), (hook_port + 1, 65_535))
    return [{"range": {"startPort": low, "endPort": high}} for low, high in ranges if low <= high]


def _max_duration_s(answer: Answer) -> int:
    seconds = int(answer.get("maximumDurationInSeconds") or 0)
    return 0 if seconds > _NO_CAP_S else seconds


def sandbox_record(answer: Answer) -> SandboxRecord:
    """What RunMicrovm and GetMicrovm answer."""
    idle = answer.get("idlePolicy")
    return SandboxRecord(
        id=SandboxId(_required(answer, "microvmId")),
        state=_state(answer),
        endpoint=_host(_text(answer, "endpoint")),
        image_arn=_text(answer, "imageArn"),
        image_version=_text(answer, "imageVersion"),
        started_at=_instant(answer, "startedAt") or _EPOCH,
        max_duration_s=_max_duration_s(answer),
        terminated_at=_instant(answer, "terminatedAt"),
        state_reason=_text(answer, "stateReason"),
        execution_role_arn=_text(answer, "executionRoleArn"),
        idle=_idle_policy(idle) if idle else None,
        ingress_connectors=tuple(harmless_line(one) for one in answer.get("ingressNetworkConnectors") or ()),
        egress_connectors=tuple(harmless_line(one) for one in answer.get("egressNetworkConnectors") or ()),
    )


def sandbox_listing(item: Answer) -> SandboxListing:
    """One item of ListMicrovms."""
    return SandboxListing(
        id=SandboxId(_required(item, "microvmId")),
        state=_state(item),
        image_arn=_text(item, "imageArn"),
        image_version=_text(item, "imageVersion"),
        started_at=_instant(item, "startedAt") or _EPOCH,
    )


def image(item: Answer, *, is_managed: bool = False) -> Image:
    """One image, from a listing or on its own; managed ones carry their name in the ARN only."""
    arn = _required(item, "imageArn")
    return Image(
        arn=arn,
        name=_text(item, "name") or arn.rsplit(":", 1)[-1],
        state=_text(item, "state") or ("AVAILABLE" if is_managed else ""),
        created_at=_instant(item, "createdAt"),
        updated_at=_instant(item, "updatedAt"),
        latest_version=_text(item, "latestActiveImageVersion"),
        is_managed=is_managed,
    )


def image_version(item: Answer, *, is_managed: bool = False) -> ImageVersion:
    """One version of an image; a managed one that is not recalled counts as built and active."""
    resources = item.get("resources") or [{}]
    status = _text(item, "status")
    return ImageVersion(
        arn=_required(item, "imageArn"),
        version=_required(item, "imageVersion"),
        state=_text(item, "state") or ("SUCCESSFUL" if is_managed else ""),
        status="ACTIVE" if is_managed and status in ("", "AVAILABLE", "DEPRECATED") else status,
        memory_mib=int(resources[0].get("minimumMemoryInMiB") or 0),
        hooks=_hooks(item.get("hooks") or {}),
    )


def image_build(item: Answer) -> ImageBuild:
    """One item of ListMicrovmImageBuilds."""
    return ImageBuild(
        id=_required(item, "buildId"),
        state=_text(item, "buildState"),
        reason=_text(item, "stateReason"),
        chip=" ".join(filter(None, (_text(item, "chipset"), _text(item, "chipsetGeneration")))),
    )


def token_value(answer: Answer) -> str:
    """The token of CreateMicrovmAuthToken: a map of headers with this one in it.

    Raises:
        ControlUnavailable: The answer holds none.
    """
    parts: Mapping[str, str] = answer.get("authToken") or {}
    for header, value in parts.items():
        if header.lower() == _TOKEN_HEADER and value:
            return value
    raise ControlUnavailable("the control plane's answer holds no endpoint token", hint="try again")


def _hooks(hooks: Answer) -> tuple[str, ...]:
    enabled: list[str] = []
    for group in ("microvmImageHooks", "microvmHooks"):
        states: Mapping[str, Any] = hooks.get(group) or {}
        enabled += [name for name, state in states.items() if state == "ENABLED"]
    return tuple(sorted(enabled))


def _idle_policy(policy: Answer) -> IdlePolicy:
    return IdlePolicy(
        max_idle_s=int(policy.get("maxIdleDurationSeconds") or 0),
        suspended_s=int(policy.get("suspendedDurationSeconds") or 0),
        auto_resume=bool(policy.get("autoResumeEnabled")),
    )


def _state(item: Answer) -> SandboxState:
    try:
        return SandboxState(item.get("state", ""))
    except ValueError:
        # A state added after this was written: shown as unknown, never as gone.
        return SandboxState.UNKNOWN


def _host(endpoint: str) -> str:
    """A host, maybe with a port; other servers than AWS may put a scheme before it."""
    return endpoint.removeprefix("https://").removeprefix("http://").rstrip("/")


def _text(item: Answer, key: str) -> str:
    return harmless_line(str(item.get(key) or ""), limit=2_048)


def _required(item: Answer, key: str) -> str:
    if not (text := _text(item, key)):
        raise ControlUnavailable(f"the control plane's answer lacks `{key}`", hint="try again")
    return text


def _instant(item: Answer, key: str) -> datetime | None:
    value = item.get(key)
    return value.astimezone(UTC) if isinstance(value, datetime) else None


def check_image_arn(arn: str) -> None:
    """Refuse what the platform would refuse in three different ways, before it is asked.

    Raises:
        UsageError: It is no image ARN.
    """
    if arn.startswith("arn:") and ":microvm-image:" in arn:
        return
    shown = harmless_line(arn, limit=200)
    if ":microvm-image/" in arn:
        right = harmless_line(arn.replace(":microvm-image/", ":microvm-image:"), limit=200)
        raise UsageError(f"`{shown}` is no image ARN: it ends in a colon and the name", hint=f"try `{right}`")
    raise UsageError(
        f"`{shown}` is no image ARN",
        hint="use the full one, `arn:aws:lambda:REGION:ACCOUNT:microvm-image:NAME`; `sbx image ls` shows them",
    )
