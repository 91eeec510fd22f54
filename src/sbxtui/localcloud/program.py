"""The main process of a sandbox that was made from a built image, and the hooks that image has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

# Beside a program of the image's own, which has the usual ports, the guest listens where the platform's agent does.
GUEST_PORT, GUEST_HOOK_PORT = 8443, 8444


@dataclass(frozen=True, slots=True)
class Program:
    """What an image runs. Without `argv` that is the bundled guest alone.

    `user` is empty for the usual one. `hooks` maps each hook that is enabled to its timeout in seconds. `base` is the
    folder of the root it runs in, empty for this machine's userland.
    """

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/work"
    user: str = ""
    hook_port: int = 0
    hooks: Mapping[str, int] = field(default_factory=dict)
    base: str = ""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Of decoded JSON.

        Raises:
            TypeError, KeyError: It is none.
        """
        return cls(**{**raw, "argv": tuple(raw["argv"])})


# What the platform takes where a request names a hook without its timeout.
_DEFAULT_TIMEOUTS_S = {"ready": 60, "validate": 1, "run": 1, "resume": 1, "suspend": 1, "terminate": 1}


def hooks_of(asked: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Port and enabled hooks, with their timeouts in seconds, of a request for an image."""
    hooks = asked.get("hooks", {})
    told = {**hooks.get("microvmImageHooks", {}), **hooks.get("microvmHooks", {})}
    enabled = [name for name in _DEFAULT_TIMEOUTS_S if told.get(name) == "ENABLED"]
    return hooks.get("port", 0), {
        name: told.get(f"{name}TimeoutInSeconds", _DEFAULT_TIMEOUTS_S[name]) for name in enabled
    }
