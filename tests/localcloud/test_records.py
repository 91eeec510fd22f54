"""Records of sandboxes as they come back from disk: whole, or known to be damaged."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.records import Record

RECORD = Record(
    id="microvm-1",
    state=SandboxState.RUNNING,
    image_name="sbx-base",
    image_arn="arn:aws:lambda:local-1:1:microvm-image:sbx-base",
    image_version="1",
    memory_mib=512,
    runtime="process",
    endpoint_port=20_001,
    started_at=datetime(2026, 6, 1, tzinfo=UTC),
    token_key="token",
    fingerprint="print",
    payload="{}",
)
NEEDED = [field.name for field in dataclasses.fields(Record) if field.default is dataclasses.MISSING]


def test_a_record_comes_back_as_it_was_whatever_a_newer_version_added() -> None:
    document = json.loads(RECORD.to_json())
    assert Record.from_json(json.dumps({**document, "later": 1})) == RECORD


@pytest.mark.parametrize("name", NEEDED)
def test_a_record_without_a_needed_field_is_damaged(name: str) -> None:
    document = json.loads(RECORD.to_json())
    del document[name]
    with pytest.raises(ValueError, match="no sandbox record"):
        Record.from_json(json.dumps(document))


@pytest.mark.parametrize("change", [{"endpoint_port": 99_999}, {"endpoint_port": "x"}, {"state": "ASLEEP"}])
def test_a_record_that_says_what_cannot_be_is_damaged(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no sandbox record|ASLEEP"):
        Record.from_json(json.dumps({**json.loads(RECORD.to_json()), **change}))
