"""Images whose guest speaks the old contract only: commands run, and what it cannot do is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbxtui.core.errors import Unsupported
from sbxtui.core.model import (
    OLD_GUEST,
    Context,
    ContextKind,
    ContextName,
    EndpointToken,
    LaunchRequest,
    Phase,
    Registration,
    SandboxId,
)
from sbxtui.services.jobs import Command
from sbxtui.settings import load
from sbxtui.store.tokens import Tokens
from sbxtui.wiring import Services
from tests.support.guest_process import running_guest

ID = SandboxId("microvm-old")


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[tuple[Services, Registration]]:
    """Services of an AWS context, and a row whose guest was found to be a v1 one."""
    services = Services(load({"SBX_HOME": str(tmp_path / "home")}, cwd=tmp_path), actor="test", context_name="aws")
    now = datetime.now(UTC)
    async with running_guest(tmp_path) as guest:
        services.contexts.add(Context(ContextName("aws"), ContextKind.AWS, region="us-east-1"))
        Tokens(services.store).put("aws", EndpointToken(ID, (8080,), "any", now, now + timedelta(hours=1)))
        row = Registration(
            context=ContextName("aws"),
            name="old",
            id=ID,
            phase=Phase.TRACKED,
            request=LaunchRequest("arn:aws:lambda:us-east-1:1:microvm-image:old"),
            client_token="",
            owner="",
            created_at=now,
            endpoint=guest.url,
            facts={"guest_version": OLD_GUEST},
        )
        yield services, row
    services.close()


async def test_commands_run_with_their_output_and_exit_code(old: tuple[Services, Registration]) -> None:
    services, row = old
    result = await services.jobs.exec(row, Command(["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    line = await services.jobs.exec(row, Command("echo a line | tr a-z A-Z", env={"X": "1"}))
    assert line.stdout == b"A LINE\n"


async def test_output_is_passed_on_and_a_timeout_is_a_timeout(old: tuple[Services, Registration]) -> None:
    services, row = old
    heard: list[tuple[str, bytes]] = []

    async def listen(channel: str, data: bytes) -> None:
        heard.append((channel, data))

    await services.jobs.exec(row, Command(["echo", "told"]), on_output=listen)
    assert ("out", b"told\n") in heard
    assert (await services.jobs.exec(row, Command(["sleep", "60"], timeout_s=1))).timed_out


async def test_input_a_user_and_files_are_refused_and_not_left_out(old: tuple[Services, Registration]) -> None:
    services, row = old
    with pytest.raises(Unsupported):
        await services.jobs.exec(row, Command(["cat"]), stdin=b"x")
    with pytest.raises(Unsupported):
        await services.jobs.exec(row, Command(["id"], user="root"))
    with pytest.raises(Unsupported):
        await services.files.stat(row, "x")
