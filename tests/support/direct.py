"""A home that knows one sandbox by an address of the test's choice: a real guest, or a relay before one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sbxtui.core.model import (
    Context,
    ContextKind,
    ContextName,
    EndpointToken,
    Registration,
    SandboxId,
    SandboxRecord,
    SandboxState,
)
from sbxtui.settings import load
from sbxtui.store.tokens import Tokens
from sbxtui.wiring import Services
from tests.support.sbx import Sbx

CONTEXT = ContextName("direct")
NAME = "app"
_ID = SandboxId("microvm-direct")


def know(services: Services, endpoint: str) -> Registration:
    """Give the context `direct` a sandbox `app` at `endpoint`, with a token that is never asked for anew."""
    now = datetime.now(UTC)
    services.contexts.add(Context(CONTEXT, ContextKind.AWS, region="us-east-1"))
    Tokens(services.store).put(CONTEXT, EndpointToken(_ID, (8080,), "any", now, now + timedelta(hours=1)))
    record = SandboxRecord(
        _ID, SandboxState.RUNNING, endpoint, "arn:aws:lambda:us-east-1:1:microvm-image:x", "1", now, 0
    )
    return services.registry.adopt(CONTEXT, NAME, record, actor="test")


def direct_services(home: Path) -> Services:
    """Services of that context in a home; the caller closes them."""
    home.mkdir(parents=True, exist_ok=True)
    return Services(load({"SBX_HOME": str(home)}, cwd=home), actor="test", context_name=CONTEXT)


def direct_sbx(home: Path) -> Sbx:
    """The command line in that home and context."""
    return Sbx(home, {"SBX_CONTEXT": CONTEXT})
