"""sbxtui: disposable, isolated machines for code nobody has reviewed.

The package's top level holds next to nothing on purpose: every face imports only what it runs, and `Sandbox`,
`SyncSandbox` and `NewSecret` are imported when a program names them.
"""

from typing import TYPE_CHECKING, Any

from sbxtui._version import __version__

if TYPE_CHECKING:
    from sbxtui.api import NewSecret as NewSecret
    from sbxtui.api import Sandbox as Sandbox
    from sbxtui.api import SyncSandbox as SyncSandbox

__all__ = ["NewSecret", "Sandbox", "SyncSandbox", "__version__"]


def __getattr__(name: str) -> Any:
    """The names of the Python API, imported with all they need only now."""
    if name not in ("NewSecret", "Sandbox", "SyncSandbox"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sbxtui import api

    return getattr(api, name)
