"""Import rules finer than import-linter's: single modules of a library, and the standard library as a whole."""

from __future__ import annotations

import sys

import pytest

from tests.architecture.source import imported_names, modules

# The local cloud answers AWS's API from AWS's own model; it never is a client of it.
BOTOCORE_IN_LOCALCLOUD = (
    "auth",
    "awsrequest",
    "compat",
    "credentials",
    "exceptions",
    "loaders",
    "model",
    "serialize",
    "utils",
    "validate",
)

GUEST_MODULES_ON_THE_HOST = ("sbxguest.wire", "sbxguest.tree", "sbxguest.mux", "sbxguest.listening")


def test_core_imports_the_standard_library_and_itself_only() -> None:
    strange = _imports_outside("src/sbxtui/core", ("sbxtui.core", *sys.stdlib_module_names))
    assert not strange, "\n".join(strange)


def test_identity_imports_the_standard_library_and_core_only() -> None:
    strange = [
        hit
        for hit in _imports_outside("src/sbxtui", ("sbxtui.core", *sys.stdlib_module_names))
        if "/identity.py:" in hit
    ]
    assert not strange, "\n".join(strange)


def test_the_local_cloud_imports_settings_core_and_the_wire_only_of_us() -> None:
    allowed = (
        "sbxtui.__version__",
        "sbxtui._version",
        "sbxtui.core",
        "sbxtui.home",
        "sbxtui.identity",
        "sbxtui.roots",
        "sbxtui.settings",
        "sbxtui.localcloud",
        "sbxguest.wire",
    )
    strange = [
        hit for hit in _imports_outside("src/sbxtui/localcloud", allowed) if " sbxtui" in hit or " sbxguest." in hit
    ]
    assert not strange, "\n".join(strange)


def test_the_local_cloud_uses_botocore_for_its_models_and_signatures_only() -> None:
    allowed = tuple(f"botocore.{name}" for name in BOTOCORE_IN_LOCALCLOUD)
    strange = [hit for hit in _imports_outside("src/sbxtui/localcloud", allowed) if " botocore" in hit]
    assert not strange, "\n".join(strange)


def test_nobody_imports_the_local_cloud() -> None:
    strange = [
        f"{module.at(node)} {name}"
        for module in modules("src/sbxtui", "guest/sbxguest")
        if not module.path.startswith("src/sbxtui/localcloud/")
        for node, name in imported_names(module)
        if _is_below(name, ("sbxtui.localcloud",))
    ]
    assert not strange, "\n".join(strange)


def test_the_host_imports_only_what_both_ends_share() -> None:
    strange = [hit for hit in _imports_outside("src/sbxtui", GUEST_MODULES_ON_THE_HOST) if " sbxguest." in hit]
    assert not strange, "\n".join(strange)


def test_the_guest_imports_nothing_of_the_host() -> None:
    strange = [hit for hit in _imports_outside("guest/sbxguest", ()) if " sbxtui" in hit]
    assert not strange, "\n".join(strange)


@pytest.mark.parametrize("name", ["init"])
def test_the_guest_programs_main_process_imports_the_standard_library_and_the_guest_only(name: str) -> None:
    strange = [
        hit
        for hit in _imports_outside("guest/sbxguest", ("sbxguest", *sys.stdlib_module_names))
        if f"/{name}.py:" in hit
    ]
    assert not strange, "\n".join(strange)


def _imports_outside(folder: str, allowed: tuple[str, ...]) -> list[str]:
    return [
        f"{module.at(node)} {name}"
        for module in modules(folder)
        for node, name in imported_names(module)
        if not _is_relative(name) and not _is_below(name, allowed)
    ]


def _is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _is_relative(name: str) -> bool:
    return name.startswith(".")
