"""A server of a test with a real certificate, by an authority of the test's own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class TestAuthority:
    """Its certificate is at `ca_file`."""

    __test__ = False

    ca_file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def server_context(self, host: str) -> ssl.SSLContext:
        """TLS as that host, HTTP/1.1 and 2 on offer."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        leaf = _builder(host, self.certificate.subject, key).add_extension(names, critical=False)
        leaf = leaf.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        chain = self.ca_file.with_name(f"{host}.pem")
        chain.write_bytes(_key_pem(key) + leaf.sign(self.key, hashes.SHA256()).public_bytes(_PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def client_context(self) -> ssl.SSLContext:
        """Trusts this authority and nobody else."""
        return ssl.create_default_context(cafile=str(self.ca_file))


def make_test_authority(folder: Path) -> TestAuthority:
    """A fresh one, its files in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("a test's authority")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        **dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        ),
    )
    certificate = (
        _builder("a test's authority", name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    ca_file = folder / "test-ca.pem"
    ca_file.write_bytes(certificate.public_bytes(_PEM))
    return TestAuthority(ca_file, certificate, key)


_PEM = serialization.Encoding.PEM


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
