"""What a secret of a sandbox is: a variable's name, a value that never gets in, and the places it may go to. Pure.

A place is `HOST` (TLS at port 443), `HOST:PORT` (TLS), `http://HOST[:PORT]` (no TLS, and only then), each also as
`*.DOMAIN`, or the name of a preset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field

from sbxtui.core.destinations import PRESETS, SECRET_HOSTS
from sbxtui.core.egress import NetworkPolicy, Rule, parse_network
from sbxtui.core.errors import PolicyDenied, UsageError
from sbxtui.core.hosts import authority
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

MAX_VALUE_CHARS = 8_192
MAX_SECRETS = 50
MAX_PLACES = 20
_TLS_PORT, _PLAIN_PORT = 443, 80
_PLAIN = "http://"
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# One line that fits into a header field; what is not could change the request it is put into.
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# The guest sets these for every job, or programs find their way out and their certificates by them.
_TAKEN = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|TERM|PS1|LD_.*|SBX_.*|.*_PROXY|NODE_USE_ENV_PROXY|.*_CA_BUNDLE|SSL_CERT_FILE"
    r"|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """One destination a secret may go to, and whether under TLS only."""

    rule: Rule
    is_tls: bool

    @property
    def text(self) -> str:
        """In its one spelling."""
        return ("" if self.is_tls else _PLAIN) + _star(self.rule) + authority(self.rule.host, self.rule.port)

    def covers(self, host: str, port: int, *, is_tls: bool) -> bool:
        """Whether a normal host and a port, asked for with or without TLS, is meant."""
        return self.is_tls == is_tls and self.rule.covers(host, port)


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret for a sandbox that is about to be made.

    `hosts` as `parse_places` takes them; empty: where a variable of this name usually goes.
    """

    key: str
    value: str = field(repr=False)
    hosts: Sequence[str] = ()

    @property
    def places(self) -> tuple[SecretPlace, ...]:
        """Where it may go.

        Raises:
            UsageError: Nowhere, or a host is none.
        """
        return parse_places(self.hosts or usual_hosts(self.key))


def check_new(secrets: Sequence[NewSecret], policy: NetworkPolicy) -> None:
    """Check what a sandbox with this network shall be given, before there is one.

    Raises:
        UsageError: One cannot be a secret, has no host to go to, or is there twice.
        PolicyDenied: The sandbox may not reach a host.
    """
    keys = [check_key(secret.key) for secret in secrets]
    if twice := next((key for key in keys if keys.count(key) > 1), ""):
        raise UsageError(f"the secret `{twice}` is given twice", hint="name all of its hosts at once: KEY@HOST,HOST")
    if len(keys) > MAX_SECRETS:
        raise UsageError(f"a sandbox has at most {MAX_SECRETS} secrets, not {len(keys)}")
    for secret in secrets:
        check_value(secret.value)
        if missing := unreachable(secret.places, policy):
            rules = ",".join(missing)
            raise PolicyDenied(
                f"the sandbox may not reach {rules}, so nothing could carry `{secret.key}` there",
                hint=f"--network allow={rules}, and what else it needs",
            )


def check_key(key: str) -> str:
    """The name of the variable.

    Raises:
        UsageError: It is no name, or one that jobs need for something else.
    """
    if not _KEY.fullmatch(key):
        raise UsageError(f"`{harmless_line(key, limit=80)}` cannot name a variable", hint="letters, digits and _")
    if _TAKEN.fullmatch(key):
        raise UsageError(f"`{key}` cannot be a secret: programs in a sandbox need it for something else")
    return key


def check_value(value: str) -> str:
    """The value, which no message repeats.

    Raises:
        UsageError: It could not be put into a header.
    """
    if not value:
        raise UsageError("the value is empty", hint="give it on stdin, or by --from-env")
    if len(value) > MAX_VALUE_CHARS:
        raise UsageError(f"the value has {len(value)} characters, more than {MAX_VALUE_CHARS}")
    if not _VALUE.fullmatch(value):
        raise UsageError(
            "the value is not one line of printable ASCII", hint="only what fits into a header can be put in on the way"
        )
    return value


def parse_places(words: Iterable[str]) -> tuple[SecretPlace, ...]:
    """The places of `--host` words, each once.

    Raises:
        UsageError: One is no place, or there are none or too many.
    """
    found = dict.fromkeys(place for word in words for place in _places_of(word))
    if not found:
        raise UsageError("a secret needs a host it may go to", hint="--host HOST, HOST:PORT or a preset")
    if len(found) > MAX_PLACES:
        raise UsageError(f"{len(found)} hosts are too many for one secret", hint=f"at most {MAX_PLACES}")
    return tuple(found)


def usual_hosts(key: str) -> tuple[str, ...]:
    """Where a variable of this name usually goes; empty for one that nobody knows."""
    return SECRET_HOSTS.get(key, ())


def unreachable(places: Iterable[SecretPlace], policy: NetworkPolicy) -> list[str]:
    """The places of a secret that a policy does not let the sandbox ask for, as `HOST:PORT` rules."""
    missing = []
    for place in places:
        rule = place.rule
        # Any name stands for all those below a domain: rules of policies know no other way to part them.
        asked = f"any.{rule.host}" if rule.is_wildcard else rule.host
        if not policy.allows(asked, rule.port):
            missing.append(_star(rule) + authority(rule.host, rule.port))
    return missing


def _places_of(word: str) -> list[SecretPlace]:
    if word in PRESETS:
        return [SecretPlace(rule, is_tls=True) for rule in _rules(word) if rule.port == _TLS_PORT]
    is_plain = word.lower().startswith(_PLAIN)
    host = word[len(_PLAIN) :].removesuffix("/") if is_plain else word.removeprefix("https://").removesuffix("/")
    if not re.search(r":[0-9]+$", host) or host.endswith("]"):
        host += f":{_PLAIN_PORT if is_plain else _TLS_PORT}"
    return [SecretPlace(rule, is_tls=not is_plain) for rule in _rules(host)]


def _rules(word: str) -> tuple[Rule, ...]:
    return parse_network(f"allow={word}").rules


def _star(rule: Rule) -> str:
    return "*." if rule.is_wildcard else ""
