"""What helps where a server refuses the endpoint's name, which it sees as its host when no guest of ours is there."""

from __future__ import annotations

from collections.abc import Mapping

# What a refusal says, in any of its first bytes, and the remedy.
_REFUSALS: Mapping[bytes, str] = {
    b"Blocked request. This host": "Vite refuses the endpoint's name: set `__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS`",
    b"Invalid Host header": "webpack-dev-server refuses the endpoint's name: set `allowedHosts` to it, or to `all`",
    b"Invalid HTTP_HOST header": "Django refuses the endpoint's name: put it into `ALLOWED_HOSTS`",
    b"Blocked hosts:": "Rails refuses the endpoint's name: put it into `config.hosts`",
    b"Invalid Server Actions request": "Next refuses the origin: put it into `serverActions.allowedOrigins`",
}
_JUPYTER = "Jupyter refuses the endpoint's name: start it with `--ServerApp.allow_remote_access=True`"
_LOOKED_AT_BYTES = 4096


def hint_for(status: int, server: bytes, body: bytes) -> str:
    """The remedy for a refusal, empty where none is known.

    Args:
        status: Of the answer.
        server: Its Server header.
        body: How its body begins.
    """
    if status < 400:
        return ""
    head = body[:_LOOKED_AT_BYTES]
    for words, remedy in _REFUSALS.items():
        if words in head:
            return remedy
    return _JUPYTER if status == 403 and server.startswith(b"TornadoServer") else ""
