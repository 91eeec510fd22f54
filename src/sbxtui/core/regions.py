"""The regions of AWS in which there are MicroVMs."""

from __future__ import annotations

SERVED_REGIONS = (
    *("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "eu-north-1"),
    *("ap-northeast-1", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
)
