"""What a launch will be, decided and checked before anything is reserved, removed or billed."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sbxtui.control.api import ControlApi
from sbxtui.core.egress import parse_network
from sbxtui.core.errors import Conflict, PolicyDenied, UsageError
from sbxtui.core.life import BUDGET
from sbxtui.core.model import Context, ContextKind, IdlePolicy, ImageVersion, LaunchRequest
from sbxtui.core.names import check_labels
from sbxtui.core.pricing import longest_s, prices_for, usd_text
from sbxtui.core.secrets import NewSecret, check_new
from sbxtui.core.sizing import (
    check_cpus,
    check_isolation,
    check_memory_mib,
    check_network,
    check_role,
    sized_image_name,
)
from sbxtui.services.defaults import LaunchDefaults
from sbxtui.services.images import active_version, image_arn
from sbxtui.services.network import has_own_network
from sbxtui.services.secrets import check_can_carry
from sbxtui.settings import Settings

_AWS_IDLE = IdlePolicy(max_idle_s=900, suspended_s=28_800)
_SUSPENDED_S = 28_800
_MAX_DURATION_S = 28_800
_MIN_IDLE_S = 60
# The environment is kept with the row until the guest has it, and rows are small.
_MAX_ENV_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """What a person may ask for; empty or 0 means the default. `env` goes to the guest, not into the launch payload;
    values of `secrets` go to the local cloud alone, and are written down nowhere before.
    """

    image: str = ""
    role: str = ""
    memory_mib: int = 0
    cpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_s: int = 0
    max_duration_s: int = 0
    network: str = ""
    egress_connectors: tuple[str, ...] = ()
    ingress_connectors: tuple[str, ...] = ()
    workdir: str = ""
    purpose: str = ""
    budget_usd: float = 0.0
    isolation: str = ""
    secrets: tuple[NewSecret, ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a sandbox goes on from, beside its image.

    `facts` are kept with its row. With `has_memory` its guest knows the other's environment, and what a person gives
    goes on top of that. `ready_s` is how long it may take until it answers.
    """

    facts: Mapping[str, object]
    has_memory: bool
    ready_s: float


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A launch that can be: everything but its name. `workdir` is empty for the image's own, `isolation` for what its
    control plane gives all.
    """

    options: CreateOptions
    version: ImageVersion
    role: str
    network: str
    env: Mapping[str, str] = field(repr=False)
    workdir: str
    is_aws: bool
    max_duration_s: int | None
    isolation: str = ""

    def request(self, name: str) -> LaunchRequest:
        """The exact request for a sandbox called `name`."""
        options = self.options
        idle = IdlePolicy(options.idle_s, _SUSPENDED_S) if options.idle_s else _AWS_IDLE if self.is_aws else None
        return LaunchRequest(
            image_arn=self.version.arn,
            image_version=self.version.version,
            execution_role_arn=self.role,
            idle=idle,
            max_duration_s=self.max_duration_s,
            ingress_connectors=options.ingress_connectors,
            egress_connectors=options.egress_connectors,
            # The platform refuses a payload for an image without the run hook.
            payload=_identity(name, options.purpose, self.isolation) if "run" in self.version.hooks else "",
        )

    def facts(self) -> dict[str, object]:
        """What the row keeps. `launch` goes once the guest has it: a replay after a crash must give the same."""
        origin = self.options.origin
        more: dict[str, object] = {"keeps_env": True} if origin and origin.has_memory else {}
        if self.options.secrets:
            more["secrets"] = sorted(secret.key for secret in self.options.secrets)
        return {
            "purpose": self.options.purpose,
            **({BUDGET: self.options.budget_usd} if self.options.budget_usd else {}),
            "network": self.network,
            "memory_mib": self.version.memory_mib,
            # Never the values: facts are shown to everybody.
            "env_names": sorted(self.env),
            "launch": {"env": dict(self.env), "workdir": self.workdir, **more},
            **(origin.facts if origin else {}),
        }


async def plan_launch(
    settings: Settings, defaults: LaunchDefaults, context: Context, plane: ControlApi, options: CreateOptions
) -> LaunchPlan:
    """Check what was asked for and settle the rest.

    Raises:
        UsageError: A size, network, environment or secret that cannot be.
        PolicyDenied: The context cannot enforce the network, or has no roles; or a secret could not go where it shall.
        Unsupported: The context has no secrets.
        ImageNotFound: There is no such image, or none of its versions can be launched.
    """
    check_role(options.role, context.kind)
    isolation = check_isolation(options.isolation, context.kind) or settings.isolation
    network = check_network(
        options.network,
        context.kind,
        options.egress_connectors,
        has_own_network=has_own_network(settings.home, context, isolation),
    )
    _check_secrets(options.secrets, context, network)
    if options.memory_mib:
        check_memory_mib(options.memory_mib)
    _check_times(options)
    has_env = options.origin is not None and options.origin.has_memory
    env = {**({} if has_env else settings.env), **options.env}
    _check_env(env)
    check_labels(options.labels)
    # The image has its own working folder; only somebody who named another one means another one.
    workdir = options.workdir or (settings.workdir if "workdir" in settings.sources and not has_env else "")
    if workdir and not workdir.startswith("/"):
        raise UsageError(f"the working folder `{workdir}` is no absolute path", hint="--workdir /work")
    version = await _image_version(settings, defaults, plane, options)
    return LaunchPlan(
        options=options,
        version=version,
        role=options.role or defaults.role,
        network=network,
        env=env,
        workdir=workdir,
        is_aws=context.kind is ContextKind.AWS,
        max_duration_s=_max_duration_s(context, version, options),
        # Nobody but our local cloud reads it.
        isolation=isolation if context.kind is ContextKind.LOCAL else "",
    )


def _max_duration_s(context: Context, version: ImageVersion, options: CreateOptions) -> int | None:
    """How long it may live: what was asked for, and no longer than its budget lasts flat out, which is kept by the
    platform whatever happens to this machine.
    """
    longest = options.max_duration_s or (_MAX_DURATION_S if context.kind is ContextKind.AWS else None)
    if not options.budget_usd:
        return longest
    paid_s = longest_s(prices_for(context, version.memory_mib), options.budget_usd)
    if paid_s < _MIN_IDLE_S:
        raise UsageError(
            f"{usd_text(options.budget_usd)} would not pay for a minute of this size, busy as it may be",
            hint="a larger --budget, or a smaller --memory",
        )
    return min(paid_s, longest or _MAX_DURATION_S)


async def _image_version(
    settings: Settings, defaults: LaunchDefaults, plane: ControlApi, options: CreateOptions
) -> ImageVersion:
    image = options.image or defaults.image
    memory_mib = options.memory_mib or (0 if options.image else settings.memory_mib)
    if image.startswith("arn:"):
        version = await active_version(plane, image)
        if memory_mib and version.memory_mib not in (0, memory_mib):
            raise Conflict(
                f"image `{image}` has {version.memory_mib} MiB of memory, not {memory_mib}",
                hint="memory is a property of an image: leave --memory out, or choose another image",
            )
    else:
        version = await active_version(plane, await image_arn(plane, sized_image_name(image, memory_mib)))
    if options.cpus and version.memory_mib:
        check_cpus(options.cpus, version.memory_mib)
    return version


def _check_secrets(secrets: Sequence[NewSecret], context: Context, network: str) -> None:
    """What cannot be given later is refused before anything is made."""
    if not secrets:
        return
    check_can_carry(context, "it would be")
    if network == "host":
        raise PolicyDenied(
            "without isolation a sandbox shares this machine's network, and no proxy could put a secret in",
            hint="use an isolating runtime: `sbx doctor` tells which work here",
        )
    check_new(secrets, parse_network(network))


def _check_times(options: CreateOptions) -> None:
    if 0 < options.idle_s < _MIN_IDLE_S:
        raise UsageError(
            f"{options.idle_s} s without traffic is too short to suspend after",
            hint=f"the platform's shortest window is {_MIN_IDLE_S} s",
        )
    if options.max_duration_s > _MAX_DURATION_S:
        raise UsageError(
            f"a sandbox cannot last {options.max_duration_s} s", hint=f"at most {_MAX_DURATION_S} s, which is 8 h"
        )


def _check_env(env: Mapping[str, str]) -> None:
    size_bytes = sum(len(os.fsencode(key)) + len(os.fsencode(value)) + 2 for key, value in env.items())
    if size_bytes > _MAX_ENV_BYTES:
        raise UsageError(
            f"the environment has {size_bytes} bytes, more than {_MAX_ENV_BYTES}",
            hint="copy large values into a file of the sandbox with `sbx cp`",
        )


def _identity(name: str, purpose: str, isolation: str) -> str:
    """What the guest is told about itself, so that another machine can rebuild the list from it."""
    identity = {"v": 1, "name": name, "owner": f"{_user()}@{socket.gethostname()}", "purpose": purpose}
    if isolation:
        identity["isolation"] = isolation
    return json.dumps(identity, separators=(",", ":"), sort_keys=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A uid without an entry, as in many containers.
        return f"uid-{os.geteuid()}"
