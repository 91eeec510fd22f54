"""Our way of making clients is faster than boto3's, and must lead to the same place."""

from __future__ import annotations

import botocore.session
import pytest

from sbxtui.control.calls import Timeouts
from sbxtui.control.session import make_client
from sbxtui.core.model import Context, ContextKind, ContextName
from tests.control.planes import KEYS

REGIONS = sorted(
    {
        *("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-northeast-1", "ap-southeast-2", "sa-east-1"),
        *("cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1", "mx-central-1", "local-1", "zz-new-9"),
    }
)


def _place(client: object) -> tuple[object, ...]:
    meta = client.meta  # type: ignore[attr-defined]  # botocore has no types
    signer = client._request_signer  # type: ignore[attr-defined]  # same
    return (meta.endpoint_url, meta.region_name, meta.partition, signer._signing_name, signer._region_name)


@pytest.mark.parametrize(
    ("service", "region"),
    [
        *(("lambda-microvms", region) for region in REGIONS),
        *(("sts", region) for region in REGIONS[::3]),
        *(("s3", "eu-west-1"), ("logs", "cn-north-1"), ("iam", "us-east-1"), ("lambda-core", "us-west-2")),
    ],
)
def test_a_client_talks_to_the_same_address_as_boto3s(service: str, region: str) -> None:
    context = Context(ContextName("work"), ContextKind.AWS, region=region)
    ours = make_client(service, context, credentials=KEYS, ca_bundle="", timeouts=Timeouts())
    theirs = botocore.session.Session().create_client(
        service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
    )
    assert _place(ours) == _place(theirs)


def test_an_unknown_service_is_still_unknown() -> None:
    context = Context(ContextName("work"), ContextKind.AWS, region="us-east-1")
    with pytest.raises(botocore.exceptions.UnknownServiceError):
        make_client("no-such-service", context, credentials=KEYS, ca_bundle="", timeouts=Timeouts())
