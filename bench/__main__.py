"""`python -m bench [NAME…]`: the tables of the named benchmarks; without names all, kept in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import bench
from bench.support import Row, machine_facts

_REPORT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
_NOT_BENCHMARKS = {"__main__", "bridge", "byhand", "guest", "mcp_process", "relay", "support", "trees"}
_COLUMNS = ("what", "ours", "against")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when a benchmark failed."""
    known = benchmark_names()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=bench.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    asked: list[str] = parser.parse_args(argv).names
    if unknown := sorted(set(asked) - set(known)):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")
    sections, failed = [], []
    for name in asked or known:
        try:
            section = measure(name)
        except Exception as exc:  # noqa: BLE001 - one failing benchmark must not take the others' figures with it
            failed.append(name)
            print(f"{name}: {type(exc).__name__}: {exc}", file=sys.stderr)
            continue
        print(section, flush=True)
        sections.append(section)
    if not asked and not failed:
        _REPORT.write_text(report(sections), encoding="utf-8")
    return 1 if failed else 0


def benchmark_names() -> list[str]:
    """The modules of this package that measure something."""
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _NOT_BENCHMARKS)


def measure(name: str) -> str:
    """Run one benchmark; its heading and table in Markdown."""
    module = importlib.import_module(f"bench.{name}")
    heading = (module.__doc__ or name).strip().splitlines()[0].rstrip(".")
    rows: list[Row] = module.run()
    return f"## {name}\n\n{heading}.\n\n{table(rows)}"


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table whose columns line up in a terminal, too."""
    cells = [_COLUMNS, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def report(sections: Sequence[str]) -> str:
    """The page that keeps the last whole run."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    head = (
        "# Benchmarks\n\nThe last whole run of `make bench`; single ones: `python -m bench NAME`. Trust the ratios:\n"
        "both sides of each were measured in the same run, and seconds belong to the machine they were measured on.\n"
    )
    return "\n".join([head, f"{machine_facts()}, {today}.\n", *sections])


if __name__ == "__main__":
    raise SystemExit(main())
