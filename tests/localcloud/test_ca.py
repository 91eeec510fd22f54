"""The home's certificate authority: strict clients accept it, and it can vouch for nothing but loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sbxtui.localcloud.ca import CaFiles, server_context


async def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    async def done(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(done, "127.0.0.1", 0, ssl=server) as listening:
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        writer.close()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1"])
async def test_a_strict_client_accepts_loopback_names(tmp_path: Path, name: str) -> None:
    server, ca_file = server_context(tmp_path / "ca")
    client = ssl.create_default_context(cafile=ca_file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    async with asyncio.timeout(10):
        await shake_hands(server, client, name)


@pytest.mark.parametrize("name", ["example.com", "10.0.0.1"])
async def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    server, ca_file = server_context(tmp_path / "ca")
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(server, ssl.create_default_context(cafile=ca_file), name)


@pytest.mark.parametrize("name", [x509.DNSName("aws.amazon.com"), x509.IPAddress(ipaddress.ip_address("10.0.0.1"))])
async def test_a_stolen_authority_cannot_vouch_for_the_world(tmp_path: Path, name: x509.GeneralName) -> None:
    _, ca_file = server_context(tmp_path / "ca")
    authority = x509.load_pem_x509_certificate(ca_file.read_bytes())
    authority_key = serialization.load_pem_private_key(CaFiles(tmp_path / "ca").ca_key_file.read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = tmp_path / "forged.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + forged.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        await shake_hands(server, ssl.create_default_context(cafile=ca_file), str(name.value))


def test_the_authority_is_made_once_and_the_endpoints_certificate_renewed_before_it_ends(tmp_path: Path) -> None:
    files = CaFiles(tmp_path / "ca")
    server_context(files.directory)
    authority, leaf = files.ca_file.read_bytes(), files.server_file.read_bytes()
    server_context(files.directory)
    assert (files.ca_file.read_bytes(), files.server_file.read_bytes()) == (authority, leaf)
    server_context(files.directory, now=datetime.now(UTC) + timedelta(days=380))
    assert files.ca_file.read_bytes() == authority
    assert files.server_file.read_bytes() != leaf


@pytest.mark.parametrize("victim", ["ca_file", "ca_key_file", "server_file"])
@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
async def test_a_damaged_or_missing_file_is_made_anew(tmp_path: Path, victim: str, content: str) -> None:
    files = CaFiles(tmp_path / "ca")
    server_context(files.directory)
    path: Path = getattr(files, victim)
    path.write_text(content) if content else path.unlink()
    server, ca_file = server_context(files.directory)
    await shake_hands(server, ssl.create_default_context(cafile=ca_file), "localhost")


def test_keys_are_private(tmp_path: Path) -> None:
    files = CaFiles(tmp_path / "ca")
    server_context(files.directory)
    assert [path.stat().st_mode & 0o777 for path in (files.ca_key_file, files.server_file)] == [0o600, 0o600]
