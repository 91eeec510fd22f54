"""Sets gVisor up for one home: the only place of the local cloud that ever uses the network, and only when asked.

    python -m sbxtui.localcloud.setup --images DIR --cache DIR [--runsc FILE]

The package comes from where this machine's own system comes from: the addresses and keys of its apt configuration, by
apt itself, which checks signatures and hashes. Nothing is installed: the one program is unpacked into the cache. What
was found is one JSON object on stdout; steps are lines on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.localcloud.aptfetch import Fetched, fetch_runsc, suites_to_try
from sbxtui.localcloud.runtimes.base import Probe
from sbxtui.localcloud.runtimes.gvisor_probe import POINTER_NAME, build_age, digest_of, find_runsc, probe
from sbxtui.localcloud.spec import write_private


@dataclass(frozen=True, slots=True)
class SetUp:
    """The runsc sandboxes will use. `sha256` is the program's, `source` where it is from."""

    path: str
    version: str
    age: str
    platform: str
    sha256: str
    source: str


def set_up(images_dir: Path, cache_dir: Path, given: Path | None) -> SetUp:
    """Settle on a runsc that starts every time, and remember it.

    Args:
        images_dir: As `choose_runtime`'s `copies_dir`.
        cache_dir: Where a fetched program is kept.
        given: The program to use; None fetches one.

    Raises:
        SbxError: There is none, it cannot be fetched, or it fails the probe: what was set up before stays.
    """
    if given is not None:
        return _settle(images_dir, Fetched(given.absolute(), "given by path"))
    problems: list[str] = []
    for suite in suites_to_try():
        try:
            _say(f"fetching runsc of {suite.name} from this system's own package source")
            return _settle(images_dir, fetch_runsc(suite, cache_dir))
        except SbxError as exc:
            _say(exc.message)
            problems.append(f"{suite.name}: {exc.message}")
    raise RuntimeUnavailable(
        f"no gVisor could be set up ({'; '.join(problems) or 'this system has no apt sources'})",
        hint="give a runsc of your own: `sbx local setup --runsc PATH`",
    )


def _settle(images_dir: Path, fetched: Fetched) -> SetUp:
    if not fetched.path.is_file():
        raise RuntimeUnavailable(f"{fetched.path} is no program", hint="name the file `runsc` itself")
    images_dir.mkdir(parents=True, exist_ok=True)
    images_dir.chmod(0o711)
    pointer = images_dir / POINTER_NAME
    before = pointer.read_text() if pointer.exists() else ""
    write_private(pointer, json.dumps({"path": str(fetched.path), "source": fetched.source}))
    _say(f"trying {fetched.path}")
    answer = probe(images_dir, afresh=True)
    if not answer.ok or find_runsc(images_dir) != fetched.path:
        write_private(pointer, before) if before else pointer.unlink()
        raise RuntimeUnavailable(answer.why_not or "it was replaced meanwhile", hint="try another build")
    return _words(answer, fetched)


def _words(answer: Probe, fetched: Fetched) -> SetUp:
    return SetUp(
        path=str(fetched.path),
        version=answer.version,
        age=build_age(answer.version),
        platform=answer.how["platform"],
        sha256=digest_of(fetched.path),
        source=fetched.source,
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 with the result on stdout, else 1 with the error as one JSON object there."""
    parser = argparse.ArgumentParser(prog="python -m sbxtui.localcloud.setup", description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--runsc", type=Path)
    found = parser.parse_args(argv)
    try:
        told: dict[str, object] = asdict(set_up(found.images, found.cache, found.runsc))
    except SbxError as exc:
        told = {"error": exc.message, "hint": exc.hint}
    except OSError as exc:
        told = {"error": f"gVisor cannot be set up: {exc}", "hint": "see that the home can be written"}
    sys.stdout.write(json.dumps(told) + "\n")
    return 1 if "error" in told else 0


if __name__ == "__main__":
    raise SystemExit(main())
