"""Fetches the package of runsc with apt, without root and without touching the system's own state."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.core.text import harmless_line

_APT_DIR = Path("/etc/apt")
_TIMEOUT_S = 180.0
# Builds known to start every time; sid's is not among them. Others come from the system's own suite.
_KNOWN_GOOD = {"debian": ("trixie",)}
_COMPONENTS = {"debian": "main", "ubuntu": "universe"}
_OWN_KEYRING = re.compile(r"/(debian|ubuntu)-archive-[\w-]*keyring[\w.-]*$")
_OWN_HOST = re.compile(r"://([\w.-]+\.)?(debian\.org|ubuntu\.com)(?=[:/]|$)")


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of the system's distribution at one of its own addresses. `keyring` may be empty: apt's own then."""

    name: str
    address: str
    component: str
    keyring: str


@dataclass(frozen=True, slots=True)
class _Source:
    """One address and suite of the system's apt configuration, with what it takes from there."""

    address: str
    suite: str
    keyring: str
    components: tuple[str, ...]

    def as_suite(self, name: str, component: str) -> Suite:
        """A suite at this address; a key that is not a file of its own is left to what apt trusts anyhow."""
        return Suite(name, self.address, component, self.keyring if self.keyring.startswith("/") else "")

    def strangeness(self, distribution: str) -> int:
        """0 where the distribution's own keys sign it, 1 at its own hosts without a key of its own, 2 without either:
        a mirror, or somebody whose key all of apt trusts. 3 is signed by a stranger's key.
        """
        own_keyring = _OWN_KEYRING.search(self.keyring)
        if own_keyring and own_keyring[1] == distribution:
            return 0
        if self.keyring:
            return 3
        return 1 if _OWN_HOST.search(self.address) else 2


@dataclass(frozen=True, slots=True)
class Fetched:
    """An unpacked program to try, where it is from in words, and where it goes once it is found good."""

    path: Path
    source: str
    final: Path

    def keep(self) -> Path:
        """Move it into place, whatever was there before."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self.path.replace(self.final)
        return self.final


def suites_to_try(apt_dir: Path = _APT_DIR, os_release: str | None = None) -> list[Suite]:
    """Suites whose runsc may do, best first; empty where the system is none of apt's.

    Only sources that take the component the package is in count, and the distribution's own archive goes before anybody
    else's: what a third party calls `runsc` is not what the distribution does.
    """
    facts = _facts(os_release if os_release is not None else _read(Path("/etc/os-release")))
    distribution, own = facts.get("ID", ""), facts.get("VERSION_CODENAME", "")
    component = _COMPONENTS.get(distribution)
    if component is None or not own:
        return []
    sources = [one for one in _sources(apt_dir) if one.suite == own and component in one.components]
    sources.sort(key=lambda one: one.strangeness(distribution))
    names = dict.fromkeys((*_KNOWN_GOOD.get(distribution, ()), own))
    return list(dict.fromkeys(one.as_suite(name, component) for one in sources for name in names))


def _sources(apt_dir: Path) -> Iterator[_Source]:
    """Everything the system gets binary packages from."""
    for file in [apt_dir / "sources.list", *sorted((apt_dir / "sources.list.d").glob("*"))]:
        text = _read(file)
        if file.suffix == ".sources":
            yield from _of_stanzas(text)
        elif file.suffix == ".list":
            for line in re.findall(r"^deb\s+(.+)$", text, re.MULTILINE):
                keyring = re.search(r"signed-by=([^\]\s,]+)", line)
                words = re.sub(r"\[[^\]]*\]", "", line).split()
                if len(words) > 1:
                    yield _Source(words[0], words[1], keyring[1] if keyring else "", tuple(words[2:]))


def _of_stanzas(text: str) -> Iterator[_Source]:
    for stanza in re.split(r"\n\s*\n", text):
        values = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, re.MULTILINE))
        # A key in the stanza itself begins on the next line.
        keyring = values.get("Signed-By", "inline" if re.search(r"^Signed-By:", stanza, re.MULTILINE) else "").strip()
        components = tuple(values.get("Components", "").split())
        if "deb" in values.get("Types", "").split() and values.get("Enabled", "yes") != "no":
            for address in values.get("URIs", "").split():
                for suite in values.get("Suites", "").split():
                    yield _Source(address, suite, keyring, components)


@contextmanager
def fetch_runsc(suite: Suite, cache_dir: Path) -> Iterator[Fetched]:
    """Fetch, check and unpack the package; nothing of it stays but a program that is kept, named by its version.

    Raises:
        SbxError: apt or its tools are missing, the suite has no such package, or it cannot be fetched.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeUnavailable(f"`{tool}` is not there", hint="`sbx local setup --runsc PATH`")
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".apt-") as name:
        work = Path(name)
        options = private_apt(work, suite)
        _run([*options, "update"], work)
        # apt compares the hash of what it fetched with the one the signed index tells, and refuses another.
        _run([*options, "download", "runsc"], work)
        package = next(work.glob("runsc_*.deb"), None)
        if package is None:
            raise SbxError(f"`{suite.name}` has no runsc", hint="`sbx local setup --runsc PATH`")
        _run(["dpkg-deb", "-x", str(package), str(work / "unpacked")], work)
        version = package.name.split("_")[1]
        final = cache_dir / "runsc" / re.sub(r"[^A-Za-z0-9.+~-]", "-", version) / "runsc"
        program = work / "unpacked/usr/bin/runsc"
        if program.is_symlink() or not program.is_file():
            raise SbxError(f"the package of `{suite.name}` holds no runsc", hint="`sbx local setup --runsc PATH`")
        program.chmod(0o755)
        yield Fetched(program, f"package runsc {version} of {suite.name}, checked by apt", final)


def private_apt(work: Path, suite: Suite) -> list[str]:
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
        # An index that cannot be had is told as that, not as a package nobody has.
        "APT::Update::Error-Mode": "any",
        # Whatever the system's own settings allow itself.
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::AllowDowngradeToInsecureRepositories": "false",
        "Acquire::AllowWeakRepositories": "false",
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
