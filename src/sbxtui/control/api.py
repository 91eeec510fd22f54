"""The control plane as the rest of sbx sees it: our values in and out, our errors only.

AWS's spellings stop here. Nothing of AWS is imported before the first call, and making a `ControlApi` does no I/O.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sbxtui.control import decode
from sbxtui.control.calls import Call, Kind, Timeouts
from sbxtui.control.credentials import StaticCredentials
from sbxtui.control.retry import RetryPolicy, delay_before_retry
from sbxtui.core.errors import ControlUnavailable, SandboxNotFound, SbxError, TimedOut, UsageError
from sbxtui.core.model import (
    Context,
    ContextKind,
    EndpointToken,
    Image,
    ImageBuild,
    ImageVersion,
    LaunchRequest,
    SandboxId,
    SandboxListing,
    SandboxRecord,
)
from sbxtui.core.text import harmless_line
from sbxtui.core.threads import run_abandonable

__all__ = ["ControlApi", "StaticCredentials"]

_SERVICE = "lambda-microvms"
_PAGE_SIZE = 50
_MAX_TOKEN_MINUTES = 60
_HOOK_PORT = 9_000

Decoded = TypeVar("Decoded")
_USUAL_TIMEOUTS = Timeouts()
_USUAL_RETRIES = RetryPolicy()


class ControlApi:
    """The control plane of one context. Safe to share between tasks, threads and event loops.

    Failed calls are tried again while that can help; every call ends within a minute. Cancelling gives up waiting, it
    does not take back what was asked.

    Args:
        context: Whose control plane.
        credentials: Ours, for the local cloud; None means the person's own AWS credentials.
        ca_bundle: A file of CAs to trust instead of the usual ones.
        hook_port: Never in the scope of an endpoint token.
        timeouts: Limits of one attempt and of a whole call.
        retries: How often and how patiently to try again.
    """

    def __init__(
        self,
        context: Context,
        *,
        credentials: StaticCredentials | None = None,
        ca_bundle: str = "",
        hook_port: int = _HOOK_PORT,
        timeouts: Timeouts = _USUAL_TIMEOUTS,
        retries: RetryPolicy = _USUAL_RETRIES,
    ) -> None:
        self.context = context
        self._credentials = credentials
        self._ca_bundle = ca_bundle
        self._hook_port = hook_port
        self._timeouts = timeouts
        self._retries = retries
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    async def run(self, request: LaunchRequest, *, client_token: str) -> SandboxRecord:
        """Launch a sandbox; the same token with the same request gives the same sandbox, whatever its state now.

        Raises:
            ImageNotFound: No such image, or none of its versions is active.
            QuotaExceeded: The account is full. Throttled: Too many launches at once.
            UsageError: The platform cannot take this request; nothing was launched.
            Conflict: The token belongs to another request.
            ControlUnavailable, TimedOut: Whether it was launched is not known; the same call tells.
        """
        decode.check_image_arn(request.image_arn)
        parameters = decode.run_parameters(request, client_token)
        answer = await self._call("RunMicrovm", parameters, kind="image", target=request.image_arn)
        return self._read(decode.sandbox_record, answer)

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """One sandbox as the control plane knows it; that may lag some seconds behind.

        Raises:
            SandboxNotFound: There is none of that id, or it ended long ago.
        """
        return self._read(decode.sandbox_record, await self._sandbox_call("GetMicrovm", sandbox_id))

    async def list(self, *, image_arn: str = "") -> list[SandboxListing]:
        """All sandboxes of the account and region, those that ended in the last day included; of one image if given."""
        filters = {"imageIdentifier": image_arn} if image_arn else {}
        items = await self._pages("ListMicrovms", filters, kind="image", target=image_arn)
        # A sandbox made while the pages were read can shift another one onto two of them.
        listings = {one.id: one for one in (self._read(decode.sandbox_listing, item) for item in items)}
        return [*listings.values()]

    async def suspend(self, sandbox_id: str) -> None:
        """Ask for suspension; of a suspended one too.

        Raises:
            SandboxNotFound: There is none of that id. Conflict: Its state forbids it.
        """
        await self._sandbox_call("SuspendMicrovm", sandbox_id)

    async def resume(self, sandbox_id: str) -> None:
        """Ask for resumption; of a running one too.

        Raises:
            SandboxNotFound: There is none of that id. Conflict: Its state forbids it.
        """
        await self._sandbox_call("ResumeMicrovm", sandbox_id)

    async def terminate(self, sandbox_id: str) -> None:
        """End a sandbox; one that has ended or that nobody knows is left as it is."""
        try:
            await self._sandbox_call("TerminateMicrovm", sandbox_id)
        except SandboxNotFound:
            return

    async def mint_token(self, sandbox_id: str, ports: Sequence[int], *, ttl_minutes: int = 60) -> EndpointToken:
        """Make a token that opens some ports of a sandbox's endpoint, suspended or not.

        Args:
            sandbox_id: Whose endpoint.
            ports: Which ports; none means any but the hook port.
            ttl_minutes: 1 to 60.

        Raises:
            UsageError: A port or duration that cannot be, or the hook port.
            SandboxNotFound: There is none of that id. Conflict: Its state forbids it.
        """
        self._check_scope(ports, ttl_minutes)
        parameters = {
            "expirationInMinutes": ttl_minutes,
            "allowedPorts": decode.port_specifications(ports, self._hook_port),
        }
        # Counted from before the call, so that the token never seems to live longer than it does.
        minted_at = datetime.now(UTC)
        answer = await self._sandbox_call("CreateMicrovmAuthToken", sandbox_id, parameters)
        return EndpointToken(
            sandbox_id=SandboxId(sandbox_id),
            ports=tuple(sorted(set(ports))),
            value=self._read(decode.token_value, answer),
            minted_at=minted_at,
            expires_at=minted_at + timedelta(minutes=ttl_minutes),
        )

    async def images(self, name_filter: str = "") -> builtins.list[Image]:
        """The account's images; those whose name contains `name_filter` if given."""
        filters = {"nameFilter": name_filter} if name_filter else {}
        return [self._read(decode.image, item) for item in await self._pages("ListMicrovmImages", filters)]

    async def managed_images(self) -> builtins.list[Image]:
        """The platform's own base images."""
        items = await self._pages("ListManagedMicrovmImages", {})
        return [self._read(partial(decode.image, is_managed=True), item) for item in items]

    async def image(self, arn: str) -> Image:
        """One image of the account.

        Raises:
            ImageNotFound: There is none. UsageError: That is no image ARN.
        """
        decode.check_image_arn(arn)
        answer = await self._call("GetMicrovmImage", {"imageIdentifier": arn}, kind="image", target=arn)
        return self._read(decode.image, answer)

    async def image_versions(self, arn: str) -> builtins.list[ImageVersion]:
        """All versions of an image, as the platform orders them; managed images too.

        Raises:
            ImageNotFound: There is none. UsageError: That is no image ARN.
        """
        decode.check_image_arn(arn)
        is_managed = ":aws:microvm-image:" in arn
        operation = "ListManagedMicrovmImageVersions" if is_managed else "ListMicrovmImageVersions"
        items = await self._pages(operation, {"imageIdentifier": arn}, kind="image", target=arn)
        return [self._read(partial(decode.image_version, is_managed=is_managed), item) for item in items]

    async def image_version(self, arn: str, version: str) -> ImageVersion:
        """One version of an image, with its memory and the hooks it answers.

        Raises:
            ImageNotFound: There is none. UsageError: That is no image ARN.
        """
        decode.check_image_arn(arn)
        parameters = {"imageIdentifier": arn, "imageVersion": version}
        answer = await self._call("GetMicrovmImageVersion", parameters, kind="image", target=f"{arn} {version}")
        return self._read(decode.image_version, answer)

    async def image_builds(self, arn: str, version: str) -> builtins.list[ImageBuild]:
        """The builds of a version, one for each kind of processor; why one failed is told nowhere else.

        Raises:
            ImageNotFound: There is no such version. UsageError: That is no image ARN.
        """
        decode.check_image_arn(arn)
        about = {"imageIdentifier": arn, "imageVersion": version}
        items = await self._pages("ListMicrovmImageBuilds", about, kind="image", target=f"{arn} {version}")
        return [self._read(decode.image_build, item) for item in items]

    async def delete_image(self, arn: str) -> None:
        """Delete an image of the account.

        Raises:
            ImageNotFound: There is none. Conflict: It is in use. UsageError: That is no image ARN.
        """
        decode.check_image_arn(arn)
        await self._call("DeleteMicrovmImage", {"imageIdentifier": arn}, kind="image", target=arn)

    async def caller_account(self) -> str:
        """The account the credentials belong to, asked now; the local cloud's is known without asking.

        Raises:
            AccessDenied: There are no credentials, or they are not accepted.
        """
        if self.context.kind is ContextKind.LOCAL and self.context.account_id:
            return self.context.account_id
        answer = await self._call("GetCallerIdentity", {}, kind="account", service="sts")
        if not (account_id := str(answer.get("Account") or "")):
            raise ControlUnavailable(
                f"cannot tell whose credentials context `{self.context.name}` uses", hint="try again"
            )
        return account_id

    async def log_streams(self, group: str, *, prefix: str = "") -> builtins.list[str]:
        """The names of a CloudWatch log group's streams that begin with `prefix`.

        Raises:
            NotFound: There is no such group.
        """
        parameters = {"logGroupName": group, **({"logStreamNamePrefix": prefix} if prefix else {})}
        names: builtins.list[str] = []
        while True:
            answer = await self.log_call("DescribeLogStreams", parameters)
            names += [str(one.get("logStreamName")) for one in answer.get("logStreams") or []]
            token = answer.get("nextToken")
            if not token or token == parameters.get("nextToken"):
                return names
            parameters["nextToken"] = token

    async def image_call(self, operation: str, parameters: Mapping[str, Any], *, target: str) -> dict[str, Any]:
        """One call that makes or changes images, in its own spelling; errors as every call's."""
        return await self._call(operation, parameters, kind="image", target=target)

    async def object_call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """One call of S3, in its own spelling, about the bucket that `parameters` name; errors as every call's."""
        return await self._call(operation, parameters, kind="bucket", target=str(parameters["Bucket"]), service="s3")

    async def log_call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """One call of CloudWatch Logs, in its own spelling, about the group that `parameters` name.

        Raises:
            NotFound: There is no such group or stream.
        """
        group = str(parameters["logGroupName"])
        return await self._call(operation, parameters, kind="log group", target=group, service="logs")

    def _read(self, decoder: Callable[[Mapping[str, Any]], Decoded], answer: Mapping[str, Any]) -> Decoded:
        try:
            return decoder(answer)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as exc:
            message = f"the control plane of context `{self.context.name}` answered what cannot be understood"
            raise ControlUnavailable(message, hint="upgrade sbx, or check the context's endpoint") from exc

    def _check_scope(self, ports: Sequence[int], ttl_minutes: int) -> None:
        for port in ports:
            if not 1 <= port <= 65_535:
                raise UsageError(f"{port} is no port", hint="ports go from 1 to 65535")
            if port == self._hook_port:
                raise UsageError(f"port {port} is the sandbox's hook port: no token opens it", hint="use another port")
        if not 1 <= ttl_minutes <= _MAX_TOKEN_MINUTES:
            raise UsageError(f"an endpoint token cannot live {ttl_minutes} minutes", hint="1 to 60 are possible")

    async def _sandbox_call(
        self, operation: str, sandbox_id: str, parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        # An empty id would turn the request's path into that of another operation.
        if not sandbox_id or "/" in sandbox_id:
            raise UsageError(f"`{harmless_line(sandbox_id, limit=64)}` is no id of a sandbox")
        identified = {"microvmIdentifier": sandbox_id, **(parameters or {})}
        return await self._call(operation, identified, kind="sandbox", target=sandbox_id)

    async def _pages(
        self, operation: str, filters: Mapping[str, Any], *, kind: Kind = "", target: str = ""
    ) -> builtins.list[dict[str, Any]]:
        """The items of all pages. A page may be empty and not the last: only the token says whether more follow."""
        items: builtins.list[dict[str, Any]] = []
        tokens: set[str] = set()
        parameters = {**filters, "maxResults": _PAGE_SIZE}
        while True:
            answer = await self._call(operation, parameters, kind=kind, target=target)
            items += answer.get("items") or []
            token = answer.get("nextToken")
            if not token:
                return items
            if token in tokens:
                raise ControlUnavailable(f"cannot {operation}: the server gives the same page again and again")
            tokens.add(token)
            parameters["nextToken"] = token

    async def _call(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        *,
        kind: Kind = "",
        target: str = "",
        service: str = _SERVICE,
    ) -> dict[str, Any]:
        call = Call(operation, self.context, kind, target, service)
        attempts = 0
        last: SbxError | None = None
        try:
            async with asyncio.timeout(self._timeouts.call_s):
                while True:
                    try:
                        return await run_abandonable(partial(self._send, call, dict(parameters)))
                    except SbxError as exc:
                        last = exc
                        attempts += 1
                        delay_s = delay_before_retry(exc, attempts, self._retries)
                        if delay_s is None:
                            raise
                    await asyncio.sleep(delay_s)
        except TimeoutError as exc:
            message = f"cannot {call}: no answer within {self._timeouts.call_s:g} s"
            raise TimedOut(message, hint=last.hint if last else "try again; it may still happen") from exc

    def _send(self, call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        """One attempt, in a thread: blocks until the answer or botocore's own timeouts."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        from sbxtui.control.errors import no_answer, translate
        from sbxtui.control.limits import check_limits, is_answer

        try:
            client = self._client(call.service)
            if not call.context.region:
                # The region came from the person's AWS set-up; errors must name the one that was asked.
                call = replace(call, context=replace(call.context, region=client.meta.region_name or ""))
            check_limits(client, call.operation, parameters)
            method = getattr(client, xform_name(call.operation))
            answer: dict[str, Any] = method(**parameters)
        except (BotoCoreError, ClientError, ResponseParserError) as exc:
            raise translate(exc, call) from exc
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            # botocore's parsers stumble like this over bodies that no AWS service sends.
            raise no_answer(call) from exc
        if not is_answer(client, call.operation, answer):
            raise no_answer(call)
        return answer

    def _client(self, service: str) -> Any:
        from sbxtui.control.session import make_client

        with self._lock:
            if service not in self._clients:
                self._clients[service] = make_client(
                    service,
                    self.context,
                    credentials=self._credentials,
                    ca_bundle=self._ca_bundle,
                    timeouts=self._timeouts,
                )
            return self._clients[service]
