"""Making AWS clients fast and on our terms.

Importing this module imports botocore: do it when a call is made, not before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

from sbxtui._version import __version__
from sbxtui.control.calls import Timeouts
from sbxtui.control.credentials import StaticCredentials
from sbxtui.core.model import Context

# botocore logs whole answers at DEBUG, and some of ours are endpoint tokens.
if logging.getLogger("botocore").getEffectiveLevel() < logging.INFO:
    logging.getLogger("botocore").setLevel(logging.INFO)

# A dashboard asks about many sandboxes at once.
_MAX_CONNECTIONS = 32

_SERVICES = ("lambda-microvms", "lambda-core", "sts", "s3", "logs", "iam", "ec2", "service-quotas")
_REGIONAL_SERVICES = ("lambda-microvms", "lambda-core", "sts")

# With credentials of our own nothing of the person's AWS set-up may matter, not even a profile that does not exist.
_OWN_VARIABLES: Mapping[str, tuple[None, None, str | None, None]] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
    "ca_bundle": (None, None, None, None),
}


class _OurLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """Knows the few services we use, instead of looking into the folders of all four hundred."""

    def list_available_services(self, type_name: str) -> list[str]:
        """Those of our services that the installed botocore has."""
        return [name for name in _SERVICES if any((Path(path) / name).is_dir() for path in self.search_paths)]


class _RegionalLoader(_OurLoader):
    """For services whose addresses come from their own rule sets.

    botocore still reads the megabyte of old endpoint data to learn which partition a region is in; the small file of
    partitions says that too.
    """

    def load_data(self, name: str) -> Any:
        """The data file of that name; for the old endpoint data, what the file of partitions knows of it."""
        if name != "endpoints":
            return super().load_data(name)
        partitions = super().load_data("partitions")["partitions"]
        return {"version": 3, "partitions": [_as_endpoint_data(partition) for partition in partitions]}


def _as_endpoint_data(partition: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "partition": partition["id"],
        "dnsSuffix": partition["outputs"]["dnsSuffix"],
        "regionRegex": partition["regionRegex"],
        "regions": partition["regions"],
        "services": {},
        "defaults": {
            "hostname": "{service}.{region}.{dnsSuffix}",
            "protocols": ["https"],
            "signatureVersions": ["v4"],
            "variants": [],
        },
    }


def make_client(
    service: str,
    context: Context,
    *,
    credentials: StaticCredentials | None,
    ca_bundle: str,
    timeouts: Timeouts,
) -> Any:
    """A client of one AWS service for a context; thread-safe, no request is made.

    Args:
        service: Its name in boto3.
        context: Region, profile and endpoint.
        credentials: Ours; None means the person's own, found as every AWS tool finds them.
        ca_bundle: A file of CAs to trust instead of the usual ones; empty for those.
        timeouts: Connect and read limits of each attempt.

    Raises:
        botocore.exceptions.BotoCoreError: No such profile, no region, or a botocore that lacks the service.
    """
    session = _make_session(service, context, is_isolated=credentials is not None)
    keys: dict[str, str | None] = {}
    if credentials is not None:
        keys = {
            "aws_access_key_id": credentials.access_key_id,
            "aws_secret_access_key": credentials.secret_access_key,
            "aws_session_token": credentials.session_token or None,
        }
    return session.create_client(
        service,
        region_name=context.region or None,
        endpoint_url=context.endpoint_url or None,
        verify=ca_bundle or None,
        config=_config(timeouts, is_isolated=credentials is not None),
        **keys,
    )


def _make_session(service: str, context: Context, *, is_isolated: bool) -> Any:
    session = botocore.session.Session(
        session_vars=dict(_OWN_VARIABLES) if is_isolated else None,
        profile=None if is_isolated else context.profile or None,
    )
    data_path = session.get_config_variable("data_path")
    loader = _RegionalLoader if service in _REGIONAL_SERVICES else _OurLoader
    session.register_component("data_loader", loader(data_path.split(os.pathsep) if data_path else None))
    return session


def _config(timeouts: Timeouts, *, is_isolated: bool) -> Any:
    own: dict[str, Any] = {}
    if is_isolated:
        # The local cloud is on loopback: neither a proxy nor a FIPS endpoint leads there.
        own = {"proxies": {}, "use_fips_endpoint": False, "use_dualstack_endpoint": False}
    return Config(
        connect_timeout=timeouts.connect_s,
        read_timeout=timeouts.read_s,
        max_pool_connections=_MAX_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 1},
        user_agent_extra=f"sbxtui/{__version__}",
        **own,
    )
