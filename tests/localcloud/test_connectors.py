"""Network connectors by a clock that hardly moves: what is refused while one is being made, changed or taken away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sbxtui.localcloud.connectors.api import ConnectorApi
from sbxtui.localcloud.connectors.records import ConnectorStore
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.keys import HomeKeys

KEYS = HomeKeys("AKIA", "secret", b"k" * 32, datetime.now(UTC))
VPC = {"VpcEgressConfiguration": {"SubnetIds": ["subnet-1"], "AssociatedComputeResourceTypes": ["MicroVm"]}}
ASKED: dict[str, Any] = {"Name": "n", "Configuration": VPC, "OperatorRole": "arn:aws:iam::000000000000:role/r"}


def api(tmp_path: Path, time_scale: float) -> ConnectorApi:
    return ConnectorApi(ConnectorStore(tmp_path), KEYS, "local-1", "000000000000", time_scale)


async def test_one_that_is_being_made_can_be_neither_changed_nor_launched_with(tmp_path: Path) -> None:
    slow = api(tmp_path, 1e-6)
    made = await slow.create(ASKED)
    with pytest.raises(Fault, match="PENDING; try again later"):
        await slow.update({"Identifier": "n"})
    with pytest.raises(Fault, match="state PENDING; it must be ACTIVE"):
        slow.check_launch(made["Arn"])
    fast = api(tmp_path, 1e9)
    fast.check_launch(made["Arn"])
    assert (await fast.update({"Identifier": "n", "ClientToken": "t"}))["Version"] == 2
    assert (await fast.update({"Identifier": "n", "ClientToken": "t"}))["Version"] == 2


async def test_one_that_is_deleted_is_told_of_for_a_while_and_survives_a_restart(tmp_path: Path) -> None:
    await api(tmp_path, 1e9).create(ASKED)
    slow = api(tmp_path, 1e-6)
    await slow.delete({"Identifier": "n"})
    assert (await slow.get({"Identifier": "n"}))["State"] == "DELETING"
    with pytest.raises(Fault, match="not found"):
        await api(tmp_path, 1e9).get({"Identifier": "n"})
