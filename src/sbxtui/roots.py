"""The certificate authorities this machine trusts, as text for others."""

from __future__ import annotations

import ssl
from pathlib import Path


def system_roots_pem() -> str:
    """Those of the system, or of SSL_CERT_FILE; where there are none, those that come with boto3."""
    system = ssl.get_default_verify_paths().cafile
    if system and Path(system).exists():
        return Path(system).read_text()
    import certifi

    return Path(certifi.where()).read_text()
