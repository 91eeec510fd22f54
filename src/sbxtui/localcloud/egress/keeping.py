"""Secrets of running sandboxes: given, taken back, told to the guest as placeholders, and kept over restarts.

The guest gets names and placeholders, and the certificates its programs shall trust; never a value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.secrets import MAX_SECRETS, SecretPlace, check_key, check_value, parse_places, unreachable, usual_hosts
from sbxtui.localcloud import faults
from sbxtui.localcloud.catalog import AGENT_PORT
from sbxtui.localcloud.egress.authority import SandboxAuthority
from sbxtui.localcloud.egress.gateway import Gateway
from sbxtui.localcloud.egress.secrets import Secret, SecretBook, saved_secrets, secrets_of
from sbxtui.localcloud.egress.vault import Vault
from sbxtui.localcloud.hooks import ask_guest
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.waits import NotReachable
from sbxtui.roots import system_roots_pem

_FOLDER = "/home/sandbox/.sbx"
_CA, _BUNDLE = f"{_FOLDER}/ca.pem", f"{_FOLDER}/ca-bundle.pem"
# Node and Deno add to what they know; the others read one file and nothing else.
_TRUST = {
    **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"), _BUNDLE),
    **dict.fromkeys(("AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "PIP_CERT"), _BUNDLE),
    **dict.fromkeys(("NODE_EXTRA_CA_CERTS", "DENO_CERT"), _CA),
}
# Less than whoever asked waits for an answer.
_GUEST_TIMEOUT_S = 10.0


class SecretKeeping:
    """The secrets of all sandboxes of one home."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def load(self, sandbox_id: str) -> SecretBook:
        """A sandbox's, as they were kept."""
        saved = self._vault.load(sandbox_id)
        if not saved:
            return SecretBook()
        salt, authority = str(saved["salt"]), saved["authority"]
        book = SecretBook(salt, SandboxAuthority(str(authority["certificate"]), str(authority["key"])))
        book.replace(secrets_of(saved["secrets"], book))
        return book

    async def give(self, vm: Vm, gateway: Gateway, key: str, told: dict[str, Any]) -> dict[str, Any]:
        """Give a secret, or another value or other places to one that is there; holds from the return on.

        Args:
            vm: The sandbox.
            gateway: Its way out.
            key: The variable.
            told: `value`, and `places` as a person writes them; one that is left out stays what it was.

        Raises:
            Fault: 400 for what cannot be a secret; 409 where nothing could carry it, or the guest does not take it.
        """
        book = gateway.secrets
        async with book.changing:
            secret = _checked(vm, gateway, key, told)
            others = [one for one in book.all() if one.key != key]
            if len(others) >= MAX_SECRETS:
                raise faults.validation(f"a sandbox has at most {MAX_SECRETS} secrets")
            wanted = [*others, secret]
            # The guest first: what it does not take must not be kept either. A placeholder alone does no harm.
            await self._tell(vm, book, wanted)
            await self._vault.save(vm.record.id, _content(book, wanted))
            book.replace(wanted)
        return described(secret)

    async def take_back(self, vm: Vm, gateway: Gateway, key: str) -> dict[str, Any]:
        """From the call on no request carries it; whether the guest knows, too, is told as `isToldInside`.

        Raises:
            Fault: 404 for one that is not there.
        """
        book = gateway.secrets
        async with book.changing:
            secret = book.get(key)
            if secret is None:
                raise faults.not_found(f"MicroVM {vm.record.id} has no secret {key}", "Secret", key)
            wanted = [one for one in book.all() if one.key != key]
            book.replace(wanted)
            await self._vault.save(vm.record.id, _content(book, wanted))
            try:
                await self._tell(vm, book, wanted)
            except faults.Fault:
                return {**described(secret), "isToldInside": False}
        return {**described(secret), "isToldInside": True}

    def forget(self, sandbox_id: str) -> None:
        """It has ended."""
        self._vault.forget(sandbox_id)

    async def _tell(self, vm: Vm, book: SecretBook, secrets: Sequence[Secret]) -> None:
        """Certificates before the variables that name them."""
        env = {secret.key: secret.placeholder for secret in secrets}
        body = {"env": env, "defaults": _TRUST if secrets else {}}
        try:
            async with asyncio.timeout(_GUEST_TIMEOUT_S):
                if secrets:
                    ca = book.authority.certificate_pem
                    await _put(vm, _file(_CA), ca.encode())
                    roots = await asyncio.to_thread(system_roots_pem)
                    await _put(vm, _file(_BUNDLE), f"{roots.rstrip()}\n{ca}".encode())
                await _put(vm, "/v2/secrets", json.dumps(body).encode())
        except (NotReachable, TimeoutError) as exc:
            message = f"MicroVM {vm.record.id} is {vm.state} and does not take secrets now"
            raise faults.conflict(message, "MicroVM", vm.record.id) from exc


def described(secret: Secret) -> dict[str, Any]:
    """What anybody may know of it."""
    return {
        "key": secret.key,
        "placeholder": secret.placeholder,
        "places": [place.text for place in secret.places],
    }


def _checked(vm: Vm, gateway: Gateway, key: str, told: dict[str, Any]) -> Secret:
    known = gateway.secrets.get(key)
    try:
        check_key(key)
        value = check_value(str(told["value"])) if "value" in told else known.value if known else ""
        places = _places(known, key, told.get("places", ()))
    except UsageError as exc:
        raise faults.validation(f"{exc.message}: {exc.hint}" if exc.hint else exc.message) from exc
    if not value:
        raise faults.validation(f"`{key}` is new and needs a value")
    if missing := unreachable(places, gateway.policy):
        rules = ",".join(missing)
        message = f"this sandbox may not reach {rules}, so nothing could carry `{key}` there: allow it first"
        raise faults.conflict(message, "MicroVM", vm.record.id)
    return gateway.secrets.made(key, value, places)


def _places(known: Secret | None, key: str, words: Sequence[str]) -> tuple[SecretPlace, ...]:
    if words:
        return parse_places(words)
    return known.places if known else parse_places(usual_hosts(key))


def _content(book: SecretBook, secrets: Sequence[Secret]) -> dict[str, Any]:
    authority = {"certificate": book.authority.certificate_pem, "key": book.authority.key_pem}
    return {"salt": book.salt, "authority": authority, "secrets": saved_secrets(secrets)}


def _file(path: str) -> str:
    return f"/v2/files?path={path}&parents=1&mode=644"


async def _put(vm: Vm, path: str, body: bytes) -> None:
    status = await ask_guest(vm.connect, AGENT_PORT, "PUT", path, body)
    if status == 404:
        message = f"The guest of MicroVM {vm.record.id} is of an older sbx and takes no secrets"
        raise faults.conflict(message, "MicroVM", vm.record.id)
    if status not in (200, 201):
        message = f"The guest of MicroVM {vm.record.id} does not take secrets: it answered {status}"
        raise faults.conflict(message, "MicroVM", vm.record.id)
