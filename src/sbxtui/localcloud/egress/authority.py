"""A sandbox's own certificate authority, which that sandbox alone trusts, and what it signs for the hosts of secrets.

Its key never leaves this process and the vault.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sbxtui.core.hosts import as_address, normal_host
from sbxtui.localcloud.certificates import builder, key_pem, key_usage, pem

_CA_LIFETIME = timedelta(days=3650)
_LEAF_LIFETIME = timedelta(days=90)
_RENEW_BEFORE = timedelta(days=30)


@dataclass(slots=True)
class _Leaf:
    context: ssl.SSLContext
    until: datetime


@dataclass(slots=True)
class SandboxAuthority:
    """`certificate_pem` is for the sandbox, `key_pem` for nobody."""

    certificate_pem: str
    key_pem: str = field(repr=False)
    _leaves: dict[str, _Leaf] = field(default_factory=dict, repr=False)

    def server_context(self, host: str) -> ssl.SSLContext:
        """TLS as that host, and as no other that a program may name in its hello. HTTP/1.1 only."""
        now = datetime.now(UTC)
        leaf = self._leaves.get(host)
        if leaf is None or leaf.until < now:
            leaf = self._leaves[host] = _Leaf(self._made(host, now), now + _LEAF_LIFETIME - _RENEW_BEFORE)
        return leaf.context

    def _made(self, host: str, now: datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _load_chain(context, _signed(self, host, now))

        def check_name(_: ssl.SSLObject, named: str | None, __: ssl.SSLContext) -> int | None:
            return None if named is None or _is(named, host) else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = check_name
        return context


def make_authority() -> SandboxAuthority:
    """A fresh one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("sbx secrets of one sandbox")
    certificate = (
        builder(name, name, key.public_key(), datetime.now(UTC), _CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return SandboxAuthority(pem(certificate).decode(), key_pem(key).decode())


def _signed(authority: SandboxAuthority, host: str, now: datetime) -> bytes:
    """Key and certificate of a host."""
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    issuer_key = serialization.load_pem_private_key(authority.key_pem.encode(), None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of ours")
    key = ec.generate_private_key(ec.SECP256R1())
    address = as_address(host)
    told: x509.GeneralName = x509.DNSName(host) if address is None else x509.IPAddress(address)
    # A subject holds 64 characters, a host up to 253: what clients read are the alternative names.
    leaf = (
        builder(_name(host[:64]), issuer.subject, key.public_key(), now, _LEAF_LIFETIME)
        .add_extension(x509.SubjectAlternativeName([told]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return key_pem(key) + pem(leaf)


def _load_chain(context: ssl.SSLContext, chain: bytes) -> None:
    """ssl takes files only; this one has no name and never meets a disk."""
    descriptor = os.memfd_create("sbx-leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _is(named: str, host: str) -> bool:
    try:
        return normal_host(named) == host
    except ValueError:
        return False


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
