"""Fetches the package of runsc with apt, without root and without touching the system's own state."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.core.text import harmless_line

_APT_DIR = Path("/etc/apt")
_TIMEOUT_S = 180.0
# Builds known to start every time; sid's is not among them. Others come from the system's own suite.
_KNOWN_GOOD = {"debian": ("trixie",)}
_COMPONENTS = {"debian": "main", "ubuntu": "universe"}


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of the system's distribution at one of its own addresses. `keyring` may be empty: apt's own then."""

    name: str
    address: str
    component: str
    keyring: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """A program, and where it is from in words."""

    path: Path
    source: str


def suites_to_try(apt_dir: Path = _APT_DIR, os_release: str | None = None) -> list[Suite]:
    """Suites whose runsc may do, best first; empty where the system is none of apt's."""
    facts = _facts(os_release if os_release is not None else _read(Path("/etc/os-release")))
    distribution, own = facts.get("ID", ""), facts.get("VERSION_CODENAME", "")
    component = _COMPONENTS.get(distribution)
    if component is None or not own:
        return []
    for address, suite, keyring in _sources(apt_dir):
        if suite == own:
            names = dict.fromkeys((*_KNOWN_GOOD.get(distribution, ()), own))
            return [Suite(name, address, component, keyring) for name in names]
    return []


def _sources(apt_dir: Path) -> Iterator[tuple[str, str, str]]:
    """Address, suite and keyring of everything the system gets binary packages from."""
    for file in [apt_dir / "sources.list", *sorted((apt_dir / "sources.list.d").glob("*"))]:
        text = _read(file)
        if file.suffix == ".sources":
            yield from _of_stanzas(text)
        elif file.suffix == ".list":
            for line in re.findall(r"^deb\s+(.+)$", text, re.MULTILINE):
                keyring = re.search(r"signed-by=([^\]\s,]+)", line)
                words = re.sub(r"\[[^\]]*\]", "", line).split()
                if len(words) > 1:
                    yield words[0], words[1], keyring[1] if keyring else ""


def _of_stanzas(text: str) -> Iterator[tuple[str, str, str]]:
    for stanza in re.split(r"\n\s*\n", text):
        values = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, re.MULTILINE))
        keyring = values.get("Signed-By", "")
        if "deb" in values.get("Types", "").split() and values.get("Enabled", "yes") != "no":
            for address in values.get("URIs", "").split():
                for suite in values.get("Suites", "").split():
                    yield address, suite, keyring if keyring.startswith("/") else ""


def fetch_runsc(suite: Suite, cache_dir: Path) -> Fetched:
    """Fetch, check and unpack the package; only the program stays, named by its version.

    Raises:
        SbxError: apt or its tools are missing, the suite has no such package, or it cannot be fetched.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeUnavailable(f"`{tool}` is not there", hint="`sbx local setup --runsc PATH`")
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".apt-") as name:
        work = Path(name)
        options = _private_apt(work, suite)
        _run([*options, "update"], work)
        # apt compares the hash of what it fetched with the one the signed index tells, and refuses another.
        _run([*options, "download", "runsc"], work)
        package = next(work.glob("runsc_*.deb"), None)
        if package is None:
            raise SbxError(f"`{suite.name}` has no runsc", hint="`sbx local setup --runsc PATH`")
        _run(["dpkg-deb", "-x", str(package), str(work / "unpacked")], work)
        version = package.name.split("_")[1]
        final = cache_dir / "runsc" / re.sub(r"[^A-Za-z0-9.+~-]", "-", version) / "runsc"
        final.parent.mkdir(parents=True, exist_ok=True)
        (work / "unpacked/usr/bin/runsc").chmod(0o755)
        (work / "unpacked/usr/bin/runsc").replace(final)
    return Fetched(final, f"package runsc {version} of {suite.name}, checked by apt")


def _private_apt(work: Path, suite: Suite) -> list[str]:
    """apt-get with state, cache and sources of its own."""
    for folder in ("lists/partial", "archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    lines = [
        "Types: deb",
        f"URIs: {suite.address}",
        f"Suites: {suite.name}",
        f"Components: {suite.component}",
        *([f"Signed-By: {suite.keyring}"] if suite.keyring else []),
    ]
    (work / "parts" / "sbx.sources").write_text("\n".join(lines) + "\n")
    settings: Mapping[str, str] = {
        "Dir::State": str(work),
        "Dir::State::Lists": str(work / "lists"),
        "Dir::State::status": "/dev/null",
        "Dir::Cache": str(work),
        "Dir::Cache::archives": str(work / "archives"),
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": str(work / "parts"),
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]


def _run(command: list[str], work: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    env |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, cwd=work, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise RuntimeUnavailable(f"`{command[0]}` failed: {exc}", hint="`sbx local setup --runsc PATH`") from exc
    if done.returncode:
        words = next((line for line in done.stderr.splitlines() if line.startswith(("E:", "dpkg"))), done.stderr)
        raise RuntimeUnavailable(
            f"`{command[0]}` said: {harmless_line(words.strip(), limit=200)}", hint="see that the network is up"
        )


def _facts(os_release: str) -> dict[str, str]:
    return {name: value.strip("\"'") for name, value in re.findall(r"^(\w+)=(.*)$", os_release, re.MULTILINE)}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
