"""Which image gives a sandbox the size and network that were asked for. Sizes are properties of images."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sbxtui.core.egress import parse_network
from sbxtui.core.errors import PolicyDenied, UsageError
from sbxtui.core.isolation import check_wish, require
from sbxtui.core.model import DEFAULT_MEMORY_MIB, MEMORY_SIZES_MIB, VCPUS_BY_MEMORY_MIB, ContextKind
from sbxtui.core.text import counted, harmless_line

BASE_IMAGE = "sbx-base"
_SIZED = re.compile(r"(?P<stem>[a-zA-Z0-9_-]+)-(?P<size>512|1024|2048|4096|8192)")
_IMAGE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_memory_mib(memory_mib: int) -> int:
    """Return `memory_mib` if images of that size exist.

    Raises:
        UsageError: They do not; names those that do.
    """
    if memory_mib not in MEMORY_SIZES_MIB:
        sizes = ", ".join(str(size) for size in MEMORY_SIZES_MIB)
        raise UsageError(f"no image has {memory_mib} MiB of memory", hint=f"sizes in MiB: {sizes}")
    return memory_mib


def check_cpus(cpus: int, memory_mib: int) -> None:
    """Check that a size gives at least `cpus` processors; a size's processors cannot be chosen on their own.

    Raises:
        UsageError: It does not; names the smallest size that does.
    """
    given = VCPUS_BY_MEMORY_MIB[memory_mib]
    if cpus < 1:
        raise UsageError(f"a sandbox cannot have {cpus} processors", hint="ask for 1 or more")
    if cpus <= given:
        return
    enough = [size for size in MEMORY_SIZES_MIB if VCPUS_BY_MEMORY_MIB[size] >= cpus]
    hint = f"the smallest that does is `--memory {enough[0]}`" if enough else "the largest size gives 16"
    raise UsageError(f"{memory_mib} MiB gives {counted(given, 'processor')}, not {cpus}", hint=hint)


def sized_image_name(image: str, memory_mib: int) -> str:
    """The name of the variant of `image` with `memory_mib` (0: as named, or the default for a bare stem).

    `sbx-base` with 512 gives `sbx-base-512`; `sbx-base-512` with 1024 gives `sbx-base-1024`.

    Raises:
        UsageError: The name breaks the platform's rules, or the size does not exist.
    """
    if not _IMAGE_NAME.fullmatch(image):
        raise UsageError(
            f"`{harmless_line(image)}` names no image", hint="give a name or an ARN; `sbx-base` is always there locally"
        )
    sized = _SIZED.fullmatch(image)
    if memory_mib:
        check_memory_mib(memory_mib)
        return f"{sized['stem'] if sized else image}-{memory_mib}"
    if sized or image != BASE_IMAGE:
        return image
    return f"{image}-{DEFAULT_MEMORY_MIB}"


def check_network(
    network: str, kind: ContextKind, egress_connectors: Sequence[str], *, has_own_network: bool = True
) -> str:
    """The effective network in words: `none`, `allow=…`, `internet`, `host`, `managed` or `connector`.

    Args:
        network: What was asked for; empty for the context's default.
        kind: Where the sandbox will run.
        egress_connectors: Connectors given for it; they decide on AWS.
        has_own_network: False where local sandboxes share this machine's.

    Raises:
        UsageError: It is no network policy.
        PolicyDenied: Nothing here would enforce it; nothing was started.
    """
    asked = parse_network(network).text if network else ""
    if kind is ContextKind.LOCAL:
        if egress_connectors:
            raise PolicyDenied(
                "the local cloud has no network connectors, so an egress connector cannot be attached",
                hint="leave it out: `--network` says what a local sandbox may reach",
            )
        if has_own_network:
            return asked or "none"
        if asked:
            raise PolicyDenied(
                f"nothing would enforce `--network {asked}`: without isolation sandboxes share this machine's network",
                hint="leave --network out, or use an isolating runtime: `sbx doctor` tells which work here",
            )
        return "host"
    if egress_connectors:
        return "connector"
    if network == "internet":
        return "internet"
    if network:
        raise PolicyDenied(
            f"`--network {network}` needs an egress connector that enforces it: without one, AWS gives internet",
            hint="attach one with --egress-connector ARN",
        )
    return "managed"


def check_role(role: str, kind: ContextKind) -> None:
    """Check that an execution role given for a launch would mean something.

    Raises:
        PolicyDenied: The local cloud gives no credentials to its sandboxes; nothing was started.
    """
    if role and kind is ContextKind.LOCAL:
        raise PolicyDenied(
            "the local cloud has no roles: no credentials reach a local sandbox", hint="leave --role out"
        )


def check_isolation(wish: str, kind: ContextKind) -> str:
    """A wish for an isolation, as it was; empty for none.

    Raises:
        UsageError: It names no tier.
        RuntimeUnavailable: AWS gives another one.
    """
    if wish:
        check_wish(wish)
    if kind is ContextKind.AWS:
        require(wish, "firecracker", hint="leave the isolation out for AWS contexts")
    return wish
