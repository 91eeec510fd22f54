"""Pages of lists: a token names the last row's position, so that rows that come and go repeat none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sbxtui.localcloud import tokens
from sbxtui.localcloud.keys import HomeKeys

Row = TypeVar("Row")
Positioned = Sequence[tuple[tuple[str, ...], Row]]


def page_of(
    keys: HomeKeys,
    operation: str,
    rows: Positioned[Row],
    *,
    size: int,
    token: str | None,
    is_newest_first: bool = False,
) -> tuple[list[Row], str | None]:
    """The rows behind a token's position, and the token of the next page; None: that was the last.

    Args:
        keys: They seal the tokens.
        operation: A token is good for its own operation only.
        rows: Sorted, each with its position.
        size: How many at most.
        token: As the page before told; None begins.
        is_newest_first: Rows are sorted downwards.

    Raises:
        Fault: 400, this home gave out no such token for this operation.
    """
    if token is not None:
        last = tokens.read_page_token(keys, operation, token)
        rows = [row for row in rows if (row[0] < last if is_newest_first else row[0] > last)]
    page = [row for _, row in rows[:size]]
    if len(rows) <= size:
        return page, None
    return page, tokens.page_token(keys, operation, rows[size - 1][0])
