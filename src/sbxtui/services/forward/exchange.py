"""One request through a sandbox's endpoint, and its answer: streamed, never decoded, tried again where that is safe."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbxtui.core.bodies import framing_of
from sbxtui.core.errors import AccessDenied, Conflict, GuestUnreachable, NotFound, SbxError, Throttled
from sbxtui.core.heads import BadMessage, RequestHead, ResponseHead
from sbxtui.core.proxyheads import Passport, is_endpoints_own
from sbxtui.core.text import harmless_line
from sbxtui.guest.upstream import Upstream
from sbxtui.services.forward.hosthints import hint_for

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port
    from sbxtui.services.forward.webinlet import WebInlet
    from sbxtui.services.forward.webway import WebWay

_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})
# Answers that may be the endpoint's own are looked at whole before they pass; those are small.
_ENDPOINTS = frozenset({403, 429, 502})
_SMALL_BYTES = 256
_NO_TOKEN = (b"Request missing authentication", b"Token authentication failed")
_NO_PORT = b"Access to port denied"
# A dev server that restarts is back within a second, and so is a sandbox that has just begun.
_REFUSED_TRIES = 4
_REFUSED_PAUSE_S = 0.3
_RATE_PAUSE_S = 0.25
_RATE_PATIENCE_S = 10.0


class Exchange:
    """A request whose head has passed; `start` it once. A `Reader` of its connection to the endpoint.

    Args:
        inlet: The client's connection.
        way: To the sandbox.
        port: What the client connected to.
        request: Its head.
    """

    def __init__(self, inlet: WebInlet, way: WebWay, port: Port, request: RequestHead) -> None:
        self._inlet = inlet
        self._way = way
        self._port = port
        self._request = request
        self._body = framing_of(request.length)
        self._upstream: Upstream | None = None
        self._passport: Passport | None = None
        self._work: asyncio.Task[None] | None = None
        self._is_congested = False
        self._is_raw = False
        self._is_kept = False
        self._has_answer = False
        self._is_answered = False
        self._was_renewed = False
        self._tries = 0
        self._until_s = 0.0
        # An answer that is looked at before it passes.
        self._doubtful: ResponseHead | None = None
        self._doubtful_body = b""
        # One that passes, but of which its beginning may say what would help.
        self._refusal: ResponseHead | None = None

    # The client's side.

    def start(self) -> None:
        """Send it on as soon as there is a connection."""
        if self._request.head.has_element(b"expect", b"100-continue"):
            self._inlet.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        passport = self._way.passport(self._port.remote_port)
        upstream = self._way.upstreams.idle() if passport is not None else None
        if passport is not None and upstream is not None:
            self._go(upstream, passport)
        else:
            self._work = asyncio.create_task(self._seek())

    def send(self, data: bytes) -> int:
        """Pass on what the client sends; how much of it was taken."""
        if self._upstream is None or self._is_congested:
            return 0
        if self._is_raw:
            self._upstream.write(data)
            return len(data)
        if self._body.is_done:
            return 0
        try:
            taken = self._body.feed(data)
        except BadMessage as exc:
            self.cancel()
            self._inlet.fail(exc.status, exc.why) if not self._has_answer else self._inlet.abort()
            return 0
        self._upstream.write(data if taken == len(data) else data[:taken])
        if self._body.is_done and self._is_answered:
            self._finish()
        return taken

    def pause(self) -> None:
        """The client reads nothing for now."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """It reads again."""
        if self._upstream is not None:
            self._upstream.resume()

    def cancel(self) -> None:
        """The client has gone: so is the request, wherever it is."""
        if self._work is not None:
            self._work.cancel()
        if (upstream := self._upstream) is not None:
            self._upstream = None
            self._way.upstreams.drop(upstream, is_gentle=self._is_raw)

    # The way there.

    async def _seek(self, *, pause_s: float = 0.0, is_refused: bool = False) -> None:
        port = self._port.remote_port
        try:
            if pause_s:
                await asyncio.sleep(pause_s)
            passport = None if is_refused else self._way.passport(port)
            if passport is None:
                passport = await self._way.new_passport(port, is_refused=is_refused)
            upstream = await self._way.acquire()
        except SbxError as exc:
            await self._give_up(exc)
            return
        self._work = None
        self._go(upstream, passport)

    def _go(self, upstream: Upstream, passport: Passport) -> None:
        self._upstream, self._passport = upstream, passport
        upstream.begin(self, self._request.method, wants_upgrade=self._request.wants_upgrade)
        upstream.write(self._inlet.request_out(self._request, passport))
        if self._inlet.is_slow:
            upstream.pause()
        if not self._body.is_done:
            self._inlet.proceed()

    def _again(self, *, pause_s: float, is_refused: bool = False) -> None:
        self._tries += 1
        self._work = asyncio.create_task(self._seek(pause_s=pause_s, is_refused=is_refused))

    async def _give_up(self, failure: SbxError, *, is_answered: bool = False) -> None:
        """Answer in its place, in words that name the cause.

        Args:
            failure: What came instead of an answer.
            is_answered: It came from the endpoint, to which there is a way, then.
        """
        error = await self._way.explained(failure, is_answered=is_answered)
        self._work = None
        words = error.message + (f"; {error.hint}" if error.hint else "")
        self._port.note_trouble(type(error).code, harmless_line(error.message))
        self._inlet.fail(_status_of(error), harmless_line(words))

    # The way back: a `Reader`.

    def on_head(self, response: ResponseHead) -> None:
        """Of `Reader`."""
        if response.is_interim:
            if response.status != 100 and self._passport is not None:
                self._inlet.queue(self._inlet.answer_back(response, self._request, self._passport, True))
            return
        framing = response.framing
        if response.status in _ENDPOINTS and isinstance(framing, int) and framing <= _SMALL_BYTES:
            self._doubtful, self._doubtful_body = response, b""
        else:
            self._pass(response)

    def on_body(self, data: bytes) -> None:
        """Of `Reader`."""
        if self._doubtful is not None:
            self._doubtful_body += data
            return
        if self._refusal is not None:
            self._note_hint(self._refusal, data)
        self._inlet.queue(data)

    def on_end(self) -> None:
        """Of `Reader`."""
        if self._doubtful is not None:
            self._decide(self._doubtful)
        elif self._is_raw:
            self._finish()
        else:
            self._is_answered = True
            if self._body.is_done or not self._is_kept:
                self._finish()

    def on_break(self, why: str) -> None:
        """Of `Reader`."""
        upstream, self._upstream = self._upstream, None
        was_used = upstream is not None and upstream.answered > 0
        if upstream is not None:
            self._way.upstreams.drop(upstream)
        if self._is_raw or self._has_answer:
            self._inlet.abort()
        elif was_used and not self._tries and self._request.length == 0 and self._request.method in _IDEMPOTENT:
            # It was closed while the request was on its way: the server has not seen it.
            self._again(pause_s=0.0)
        else:
            failure = GuestUnreachable(f"the connection to the sandbox broke: {harmless_line(why)}")
            self._work = asyncio.create_task(self._give_up(failure))

    def flush(self) -> None:
        """Of `Reader`."""
        self._inlet.flush()

    def pause_writing(self) -> None:
        """Of `Reader`."""
        self._is_congested = True

    def resume_writing(self) -> None:
        """Of `Reader`."""
        self._is_congested = False
        self._inlet.proceed()

    def _pass(self, response: ResponseHead) -> None:
        assert self._passport is not None
        self._has_answer = True
        is_refusal = response.status >= 400 and not self._body.is_done
        self._is_kept = self._request.is_keep_alive and response.framing != "close" and not is_refusal
        self._inlet.queue(self._inlet.answer_back(response, self._request, self._passport, self._is_kept))
        if response.status >= 400:
            self._refusal = response
        if response.status == 101:
            self._is_raw = True
            self._inlet.flush()
            self._inlet.proceed()

    def _note_hint(self, response: ResponseHead, body: bytes) -> None:
        self._refusal = None
        if hint := hint_for(response.status, b"".join(response.head.values(b"server")), body):
            self._port.note_trouble(f"hint:{hint}", hint)

    def _finish(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.resume()
            if self._body.is_done and not self._is_raw:
                self._way.upstreams.give_back(upstream)
            else:
                self._way.upstreams.drop(upstream)
        self._inlet.over(is_kept=self._is_kept and not self._is_raw)

    # Answers that may be the endpoint's own.

    def _decide(self, response: ResponseHead) -> None:
        body, self._doubtful = self._doubtful_body, None
        error = self._endpoints_word(response, body)
        if error is None:
            self._pass(response)
            self._note_hint(response, body)
            self._inlet.queue(body)
            self._is_answered = True
            self._finish()
            return
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self._way.upstreams.give_back(upstream) if self._body.is_done else self._way.upstreams.drop(upstream)
        if not self._try_again(error):
            self._work = asyncio.create_task(self._give_up(error, is_answered=True))

    def _endpoints_word(self, response: ResponseHead, body: bytes) -> SbxError | None:
        port, status = self._port.remote_port, response.status
        if status == 403 and body in _NO_TOKEN:
            return AccessDenied("the endpoint refused our token", hint="check that your credentials may make tokens")
        if status == 403 and body == _NO_PORT:
            return AccessDenied(f"the endpoint says that our token is not for port {port}")
        if status == 502 and not body:
            return GuestUnreachable(f"nothing listens on port {port} in the sandbox")
        if status == 429 and is_endpoints_own(response, body):
            return Throttled("the sandbox's endpoint takes no more requests for now")
        return None

    def _try_again(self, error: SbxError) -> bool:
        """Send it once more, where the endpoint did not let it through and all of it is still here."""
        if self._request.length != 0:
            return False
        now_s = asyncio.get_running_loop().time()
        self._until_s = self._until_s or now_s + _RATE_PATIENCE_S
        match error:
            case AccessDenied():
                if self._was_renewed or self._doubtful_body not in _NO_TOKEN:
                    return False
                self._was_renewed = True
                self._again(pause_s=0.0, is_refused=True)
            case Throttled():
                if now_s >= self._until_s:
                    return False
                self._again(pause_s=_RATE_PAUSE_S * min(8, 2**self._tries))
            case _:
                if self._tries + 1 >= _REFUSED_TRIES:
                    return False
                self._again(pause_s=_REFUSED_PAUSE_S)
        return True


def _status_of(error: SbxError) -> int:
    match error:
        case Throttled():
            return 429
        case Conflict():
            return 503
        case NotFound():
            return 410
        case _:
            return 502
