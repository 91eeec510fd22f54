"""What setting up the infrastructure left behind: ARNs and names that launches need, per context."""

from __future__ import annotations

from collections.abc import Mapping

from sbxtui.core.values import dataclass
from sbxtui.store import events
from sbxtui.store.codec import instant_text
from sbxtui.store.db import Store, Transaction

OUTPUT_NAMES = ("image_arn", "execution_role_arn", "build_bucket", "egress_network_connector_arn")


@dataclass(frozen=True, slots=True)
class Output:
    """One output; `source` says where it came from, as people would name it."""

    name: str
    value: str
    source: str


class Outputs:
    """The infrastructure outputs of a home."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, context: str) -> list[Output]:
        """The outputs of a context, by name."""
        rows = self._store.rows("SELECT name, value, source FROM outputs WHERE context = ? ORDER BY name", (context,))
        return [Output(*row) for row in rows]

    def get(self, context: str, name: str) -> str:
        """One output's value; empty when it is unset."""
        rows = self._store.rows("SELECT value FROM outputs WHERE context = ? AND name = ?", (context, name))
        return str(rows[0][0]) if rows else ""

    def set(self, context: str, values: Mapping[str, str], *, source: str, actor: str) -> None:
        """Set outputs; an empty value unsets one."""
        with self._store.transaction() as transaction:
            set_outputs(transaction, context, values, source=source)
            events.append(
                transaction,
                context=context,
                kind="infra.outputs",
                subject=context,
                actor=actor,
                data={"names": sorted(values)},
            )


def set_outputs(transaction: Transaction, context: str, values: Mapping[str, str], *, source: str) -> None:
    """`Outputs.set` as part of a larger change, without its event."""
    for name, value in values.items():
        if not value:
            transaction.execute("DELETE FROM outputs WHERE context = ? AND name = ?", (context, name))
            continue
        transaction.execute(
            "INSERT OR REPLACE INTO outputs VALUES (?, ?, ?, ?, ?)",
            (context, name, value, source, instant_text(transaction.now)),
        )
