"""The home's certificate authority and the one certificate of its endpoints, so that clients verify TLS as on AWS.

The authority may vouch for loopback names only (name constraints), because people put it beside their system's roots.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sbxtui.localcloud.certificates import builder, key_pem, key_usage, pem
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

CA_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=397)
RENEW_BEFORE = timedelta(days=30)
_NAMES: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)
_PERMITTED: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_network("127.0.0.0/8")),
    x509.IPAddress(ipaddress.ip_network("::1/128")),
)


@dataclass(frozen=True, slots=True)
class CaFiles:
    """Where the PEM files of one home are. Only `ca_file` is for others."""

    directory: Path

    @property
    def ca_file(self) -> Path:
        """The authority's certificate: what clients trust."""
        return self.directory / "ca.pem"

    @property
    def ca_key_file(self) -> Path:
        """The authority's key."""
        return self.directory / "ca-key.pem"

    @property
    def server_file(self) -> Path:
        """Key and certificate of the endpoints, in one file so that they never differ."""
        return self.directory / "endpoint.pem"


def server_context(directory: Path, *, now: datetime | None = None) -> tuple[ssl.SSLContext, Path]:
    """TLS for endpoints, and the file clients trust. Makes what is missing, damaged or about to expire.

    Raises:
        OSError: The folder cannot be written.
    """
    files = CaFiles(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    instant = now or datetime.now(UTC)
    authority = _load_authority(files, instant) or _make_authority(files, instant)
    if not _is_usable_leaf(files, authority[0], instant):
        _make_leaf(files, authority, instant)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(files.server_file)
    return context, files.ca_file


_Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _load_authority(files: CaFiles, now: datetime) -> _Authority | None:
    try:
        certificate = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
        key = serialization.load_pem_private_key(files.ca_key_file.read_bytes(), None)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        log.warning("the certificate authority of this home is damaged (%s); making a new one", exc)
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        log.warning("the certificate authority of this home does not fit its key; making a new one")
        return None
    return (certificate, key) if _is_current(certificate, now) else None


def _make_authority(files: CaFiles, now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sbx local cloud CA")])
    certificate = (
        builder(name, name, key.public_key(), now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_ca=True), critical=True)
        .add_extension(x509.NameConstraints(_PERMITTED, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    # The key first: a crash in between leaves a pair that does not fit, which is made anew.
    write_private(files.ca_key_file, key_pem(key).decode(), is_durable=True)
    write_private(files.ca_file, pem(certificate).decode(), is_durable=True)
    files.ca_file.chmod(0o644)
    return certificate, key


def _is_usable_leaf(files: CaFiles, authority: x509.Certificate, now: datetime) -> bool:
    try:
        raw = files.server_file.read_bytes()
        certificate = x509.load_pem_x509_certificate(raw)
        serialization.load_pem_private_key(raw, None)
        certificate.verify_directly_issued_by(authority)
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as exc:
        log.warning("the endpoint certificate is unusable (%s); making a new one", type(exc).__name__)
        return False
    return _is_current(certificate, now)


def _make_leaf(files: CaFiles, authority: _Authority, now: datetime) -> None:
    certificate, key = authority
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sbx local endpoint")])
    leaf = (
        builder(name, certificate.subject, leaf_key.public_key(), now, LEAF_LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(files.server_file, (key_pem(leaf_key) + pem(leaf)).decode())


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now and now + RENEW_BEFORE < certificate.not_valid_after_utc
