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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.localcloud.aptfetch import fetch_runsc, suites_to_try
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of, settle
from sbxtui.localcloud.runtimes.gvisor_probe import build_age, probe_program


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
        program = given.absolute()
        return _settle(images_dir, program, "given by path", keep=lambda: program)
    problems: list[str] = []
    for suite in suites_to_try():
        try:
            _say(f"fetching runsc of {suite.name} from this system's own package source")
            with fetch_runsc(suite, cache_dir) as fetched:
                return _settle(images_dir, fetched.path, fetched.source, keep=fetched.keep)
        except SbxError as exc:
            _say(exc.message)
            problems.append(f"{suite.name}: {exc.message}")
    raise RuntimeUnavailable(
        f"no gVisor could be set up ({'; '.join(problems) or 'this system has no apt source for it'})",
        hint="give a runsc of your own: `sbx local setup --runsc PATH`",
    )


def _settle(images_dir: Path, program: Path, source: str, *, keep: Callable[[], Path]) -> SetUp:
    """Try the program where it lies; only a sound one is moved into place by `keep`, and remembered with its hash."""
    if not program.is_file():
        raise RuntimeUnavailable(f"{program} is no program", hint="name the file `runsc` itself")
    images_dir.mkdir(parents=True, exist_ok=True)
    images_dir.chmod(0o711)
    _say(f"trying {program.name} ({source})")
    sha256 = digest_of(program)
    answer = probe_program(program, images_dir, afresh=True)
    if not answer.ok:
        raise RuntimeUnavailable(answer.why_not, hint="try another build")
    final = keep()
    settle(images_dir, final, source, sha256)
    return SetUp(
        path=str(final),
        version=answer.version,
        age=build_age(answer.version),
        platform=answer.how["platform"],
        sha256=sha256,
        source=source,
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
