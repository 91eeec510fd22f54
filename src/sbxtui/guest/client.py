"""What the host can ask of a guest. Importing this is cheap; HTTP comes with the first request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sbxtui.core.errors import GuestUnreachable, NotFound, SbxError, Throttled, TimedOut, Unsupported
from sbxtui.core.jobs import Job, TerminalSize
from sbxtui.core.model import ExecResult
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

if TYPE_CHECKING:
    from sbxtui.guest.files import GuestFiles
    from sbxtui.guest.jobs import GuestJobs
    from sbxtui.guest.logs import GuestLogs
    from sbxtui.guest.metrics import GuestMetrics
    from sbxtui.guest.shells import GuestShells
    from sbxtui.guest.transport import TokenSource, Transport
    from sbxtui.guest.tree import GuestTree

_HELLO_TIMEOUT_S = 10.0
_MIN_GENERATION = 2
# Most guests answer within the first second, and a pause that has grown by then is time a person waits for nothing.
_POLL_FIRST_S = 0.025
_POLL_EVENLY_S = 1.0
_POLL_MAX_S = 0.5


@dataclass(frozen=True, slots=True)
class Hello:
    """What a guest says of itself. All text is harmless. `sandbox_id` to `purpose` are empty without a /run hook."""

    generation: int
    features: tuple[str, ...]
    guest_version: str
    boot_id: str
    sandbox_id: str = ""
    name: str = ""
    owner: str = ""
    purpose: str = ""
    workdir: str = "/work"
    isolation: str = ""
    limits: Mapping[str, object] = field(default_factory=dict)
    now: datetime | None = None


class GuestClient:
    """A connection to one guest; `async with` closes it.

    Args:
        endpoint: `host[:port]` of the sandbox, dialled over TLS; or `http://host:port` or `unix:/path` without a proxy.
        tokens: Where endpoint tokens come from; None for a guest without a proxy before it.
        port: The guest's port, named to the proxy.
        verify: How TLS to the endpoint is checked; False not at all.
        revive: Called when nobody listens at the endpoint: it may start again whoever should.
        doubt: As of `Transport`.
    """

    def __init__(
        self,
        endpoint: str,
        tokens: TokenSource | None,
        *,
        port: int = 8080,
        verify: ssl.SSLContext | bool = True,
        revive: Callable[[], Awaitable[None]] | None = None,
        doubt: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._tokens = tokens
        self._port = port
        self._verify = verify
        self._revive = revive
        self._doubt = doubt
        self._opened: Transport | None = None
        self._hello: Hello | None = None

    async def __aenter__(self) -> GuestClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def transport(self) -> Transport:
        """The way to the guest, for other operations on it; closed with this client."""
        if self._opened is None:
            from sbxtui.guest.transport import Transport

            self._opened = Transport(
                self.endpoint,
                self._tokens,
                port=self._port,
                verify=self._verify,
                revive=self._revive,
                doubt=self._doubt,
            )
        return self._opened

    @property
    def files(self) -> GuestFiles:
        """File operations, over the same connections."""
        from sbxtui.guest.files import GuestFiles

        return GuestFiles(self.transport)

    @property
    def jobs(self) -> GuestJobs:
        """Jobs: start, list, follow, signal, end."""
        from sbxtui.guest.jobs import GuestJobs

        return GuestJobs(self.transport, self._boot_id)

    @property
    def shells(self) -> GuestShells:
        """Pseudo-shells: lines that share a folder and variables."""
        from sbxtui.guest.shells import GuestShells

        return GuestShells(self.transport, partial(self._boot_with, "shells"))

    @property
    def metrics(self) -> GuestMetrics:
        """What the sandbox uses."""
        from sbxtui.guest.metrics import GuestMetrics

        return GuestMetrics(self.transport)

    @property
    def logs(self) -> GuestLogs:
        """The sandbox's own log, over the same connections."""
        from sbxtui.guest.logs import GuestLogs

        return GuestLogs(self.transport)

    def tree(self, path: str = "") -> GuestTree:
        """A folder as one end of a sync; empty is the workdir."""
        from sbxtui.guest.tree import GuestTree

        return GuestTree(self.transport, path, partial(self._boot_with, "tree"))

    async def hello(self, *, timeout_s: float = _HELLO_TIMEOUT_S) -> Hello:
        """Ask the guest who it is.

        Raises:
            GuestUnreachable: It does not answer, or is not ready yet. Unsupported: The image has no guest of this kind.
            AccessDenied: The endpoint refused our token twice.
        """
        try:
            answer = await self.transport.call("GET", "/v2/hello", doing="asking the guest", timeout_s=timeout_s)
        except NotFound as exc:
            raise _too_old("the guest protocol of this sbx") from exc
        except Unsupported as exc:
            raise _too_old("the guest protocol of this sbx") from exc
        self._hello = _decoded(answer)
        return self._hello

    async def wait_until_ready(self, *, timeout_s: float) -> Hello:
        """Wait until the guest answers; what proxies say while a sandbox starts or resumes is not an error here.

        Raises:
            TimedOut: No answer within `timeout_s` seconds; the sandbox is left as it is.
            SbxError: An answer that waiting cannot change.
        """
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        deadline_s = started_s + timeout_s
        pause_s = _POLL_FIRST_S
        while True:
            left_s = deadline_s - loop.time()
            try:
                return await self.hello(timeout_s=max(0.05, min(left_s, _HELLO_TIMEOUT_S)))
            except (GuestUnreachable, Throttled) as exc:
                if loop.time() + pause_s >= deadline_s:
                    raise TimedOut(
                        f"the guest at {self.endpoint} did not answer within {timeout_s:g} s: {exc.message}",
                        hint="the sandbox was left as it is; its log may say more",
                    ) from exc
            await asyncio.sleep(pause_s)
            if loop.time() - started_s > _POLL_EVENLY_S:
                pause_s = min(pause_s * 1.5, _POLL_MAX_S)

    async def launch(self, *, env: Mapping[str, str], workdir: str, keeps_env: bool = False) -> None:
        """Set what every later job starts with: environment and default working directory (empty keeps the image's).

        With `keeps_env`, `env` goes on top of the environment that the guest has.
        """
        body = {"env": dict(env), "workdir": workdir, **({"keeps_env": True} if keeps_env else {})}
        await self.transport.call("PUT", "/v2/launch", doing="handing over the launch environment", document=body)

    async def exec(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout_s: float | None = None,
        user: str = "",
        actor: str = "",
        job_id: str = "",
        label: str = "",
        terminal: TerminalSize | None = None,
        ends_with_caller: bool = False,
        on_output: Callable[[str, bytes], Awaitable[None]] | None = None,
        on_started: Callable[[Job], None] | None = None,
    ) -> ExecResult:
        """Run a command to its end. However long it is silent, nothing cuts it; a lost connection is taken up again.

        Args:
            command: An argument vector, or one line for the sandbox's login shell.
            cwd: Relative to the workdir; empty is the workdir.
            env: Over the launch environment.
            stdin: Bytes for its standard input; None gives it an empty one.
            timeout_s: Running seconds, then it is killed with everything it started; None is no limit.
            user: Name or number; empty is the image's job user.
            actor: Who asks, for listings.
            job_id: An id for it, so that others can find and signal it; empty makes one up.
            label: What for, for listings.
            terminal: Run it on one; its output is all "pty" then.
            ends_with_caller: End it when its host is gone for 30 s, too. Cancelling always ends it.
            on_output: Called with ("out", "err" or "pty", bytes) as output arrives; then the result carries none.
            on_started: Called once, when it runs.

        Returns:
            The result; 127 and 126 for what cannot be found or run, 124 timed out, 128+n ended by signal n.

        Raises:
            GuestUnreachable: No way to the guest for 30 s; `details["job"]` names the job that goes on.
            Conflict: The sandbox was started anew in between. UsageError: The request cannot be.
        """
        from sbxtui.guest.exec import run_command
        from sbxtui.guest.jobs import JobRequest

        request = JobRequest(
            command,
            cwd,
            dict(env or {}),
            timeout_s,
            user,
            actor,
            job_id,
            label=label,
            terminal=terminal,
            has_stdin=stdin is not None,
            holds=True,
            ends_with_caller=ends_with_caller,
        )
        boot_id = await self._boot_id()
        return await run_command(
            self.transport, boot_id, request, stdin=stdin, on_output=on_output, on_started=on_started
        )

    async def _boot_id(self) -> str:
        """The boot this client talks to; known since its first hello."""
        return (await self._known_hello()).boot_id

    async def _boot_with(self, feature: str) -> str:
        """The same, of a guest that has a feature."""
        hello = await self._known_hello()
        if feature not in hello.features:
            raise _too_old(feature)
        return hello.boot_id

    async def _known_hello(self) -> Hello:
        if self._hello is not None:
            return self._hello
        from sbxtui.guest.retry import patiently

        return await patiently(self.hello)


def _too_old(what: str) -> SbxError:
    return Unsupported(f"this image's guest lacks {what}", hint="rebuild the image with `sbx image build`")


def _decoded(answer: Mapping[str, Any]) -> Hello:
    generation = answer.get("generation")
    if not isinstance(generation, int) or generation < _MIN_GENERATION:
        raise _too_old("the guest protocol of this sbx")
    sandbox, limits, features = answer.get("sandbox"), answer.get("limits"), answer.get("features")
    identity = sandbox if isinstance(sandbox, dict) else {}
    return Hello(
        generation,
        tuple(_line(feature) for feature in features) if isinstance(features, list) else (),
        _line(answer.get("guest_version")),
        _line(answer.get("boot_id")),
        _line(identity.get("id")),
        _line(identity.get("name")),
        _line(identity.get("owner")),
        _line(identity.get("purpose")),
        _line(answer.get("workdir")) or "/work",
        _line(answer.get("isolation")),
        limits if isinstance(limits, dict) else {},
        _instant(answer.get("now")),
    )


def _line(value: object) -> str:
    return harmless_line(value) if isinstance(value, str) else ""


def _instant(value: object) -> datetime | None:
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
