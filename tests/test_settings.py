"""Every variable, where values come from, and which of them wins."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from sbxtui import settings as settings_module
from sbxtui.core.errors import FileMissing, UsageError
from sbxtui.project import trust
from sbxtui.settings import Settings, Ui, load

# One row per variable: suffix, field, a value that is not the default, what it must become.
VARIABLES = [
    ("CONTEXT", "context", "work", "work"),
    (
        "IMAGE_ARN",
        "image_arn",
        "arn:aws:lambda:us-east-1:1:microvm-image:x",
        "arn:aws:lambda:us-east-1:1:microvm-image:x",
    ),
    ("EXECUTION_ROLE_ARN", "execution_role_arn", "arn:aws:iam::1:role/x", "arn:aws:iam::1:role/x"),
    ("REGION", "region", "eu-west-1", "eu-west-1"),
    ("EGRESS_CONNECTOR", "egress_connector", "arn:c", "arn:c"),
    ("WORKDIR", "workdir", "/src", "/src"),
    ("VERIFY_TLS", "verify_tls", "0", False),
    ("AGENT_PORT", "agent_port", "8181", 8181),
    ("HOOK_PORT", "hook_port", "9100", 9100),
    ("STATE", "seed_state_file", "/s/state.json", Path("/s/state.json")),
    ("INFRA_STATE", "seed_infra_state_file", "/s/infra.json", Path("/s/infra.json")),
    ("MCP_HOST_PATHS", "mcp_host_paths", "/a:/b", (Path("/a"), Path("/b"))),
    ("MCP_HOST_PATH_POLICY", "mcp_host_path_policy", "unrestricted", "unrestricted"),
    ("MCP_ENABLE_DANGEROUS", "mcp_enable_dangerous", "1", True),
    ("MCP_MAX_OUTPUT_BYTES", "mcp_max_output_bytes", "2048", 2048),
    ("MCP_DEFAULT_TIMEOUT_MS", "mcp_default_timeout_ms", "5000", 5000),
    ("MCP_APPROVAL_TIMEOUT_MS", "mcp_approval_timeout_ms", "9000", 9000),
    ("MCP_TOOLSETS", "mcp_toolsets", "core,files", "core,files"),
    ("MCP_APPROVE", "mcp_approve", "sandbox_remove", "sandbox_remove"),
    ("TIME_SCALE", "time_scale", "60", 60.0),
    ("ISOLATION", "isolation", "process", "process"),
    ("LOCAL_CONFORMANCE", "local_conformance", "1", True),
]
# Read before the others: HOME says where, SETUP names the project file (its own test below).
OTHERS = {"HOME", "SETUP"}


@pytest.mark.parametrize("prefix", ["SBX_", "AGENT_SANDBOX_"])
@pytest.mark.parametrize(("suffix", "field", "raw", "value"), VARIABLES)
def test_every_variable_sets_its_field(
    tmp_path: Path, prefix: str, suffix: str, field: str, raw: str, value: object
) -> None:
    default = load({"SBX_HOME": str(tmp_path)}, cwd=tmp_path)
    loaded = load({"SBX_HOME": str(tmp_path), prefix + suffix: raw}, cwd=tmp_path)
    assert getattr(default, field) != value
    assert getattr(loaded, field) == value
    assert loaded.sources[field] == prefix + suffix


def test_the_table_above_misses_no_variable() -> None:
    assert {row[0] for row in VARIABLES} | OTHERS == set(settings_module._VARIABLES) | {"HOME"}


@pytest.mark.parametrize("prefix", ["SBX_", "AGENT_SANDBOX_"])
def test_home_moves_everything(tmp_path: Path, prefix: str) -> None:
    home = load({prefix + "HOME": str(tmp_path / "h")}, cwd=tmp_path).home
    folders = (home.config_dir, home.state_dir, home.cache_dir, home.log_dir, home.local_dir, home.store_file)
    assert all(folder.is_relative_to(tmp_path / "h") for folder in folders)
    assert len(str(home.socket_dir)) <= 60


def test_two_homes_share_no_folder(tmp_path: Path) -> None:
    one = load({"SBX_HOME": str(tmp_path / "1")}, cwd=tmp_path).home
    two = load({"SBX_HOME": str(tmp_path / "2")}, cwd=tmp_path).home
    assert not {one.state_dir, one.trees_dir, one.socket_dir} & {two.state_dir, two.trees_dir, two.socket_dir}


@pytest.mark.parametrize("prefix", ["SBX_", "AGENT_SANDBOX_"])
def test_setup_names_the_project_file(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "other.yaml").write_text("workdir: /other\n")
    assert load({"SBX_HOME": str(tmp_path), prefix + "SETUP": "other.yaml"}, cwd=tmp_path).workdir == "/other"
    with pytest.raises(FileMissing):
        load({"SBX_HOME": str(tmp_path), prefix + "SETUP": "missing.yaml"}, cwd=tmp_path)


def test_a_home_of_nobody_is_named_and_a_folder_nobody_may_look_into_has_no_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="SBX_HOME `~nobody-has-this-name/sbx`"):
        load({"SBX_HOME": "~nobody-has-this-name/sbx"}, cwd=tmp_path)
    # What has too long a name may not be looked into either, also by root.
    assert load({"SBX_HOME": str(tmp_path)}, cwd=tmp_path / ("x" * 300)).workdir == "/work"


def test_who_has_no_home_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**30)
    with pytest.raises(UsageError, match="HOME is not set") as told:
        load({}, cwd=tmp_path)
    assert "SBX_HOME=DIR" in told.value.hint
    assert load({"SBX_HOME": str(tmp_path)}, cwd=tmp_path).seed_state_file.name == "state.json"


def test_our_prefix_wins_over_the_seeds_and_empty_means_unset(tmp_path: Path) -> None:
    environ = {"SBX_HOME": str(tmp_path), "SBX_WORKDIR": "/ours", "AGENT_SANDBOX_WORKDIR": "/theirs"}
    assert load(environ, cwd=tmp_path).workdir == "/ours"
    assert load({**environ, "SBX_WORKDIR": ""}, cwd=tmp_path).workdir == "/theirs"


@pytest.mark.parametrize(
    ("suffix", "raw"),
    [
        ("VERIFY_TLS", "maybe"),
        ("AGENT_PORT", "0"),
        ("AGENT_PORT", "http"),
        ("HOOK_PORT", "65536"),
        ("WORKDIR", "work"),
        ("MCP_HOST_PATH_POLICY", "all"),
        ("MCP_MAX_OUTPUT_BYTES", "1e6"),
        ("TIME_SCALE", "0"),
        ("REGION", "a\nb"),
    ],
)
def test_a_value_that_cannot_be_names_its_variable(tmp_path: Path, suffix: str, raw: str) -> None:
    with pytest.raises(UsageError, match=f"SBX_{suffix}"):
        load({"SBX_HOME": str(tmp_path), f"SBX_{suffix}": raw}, cwd=tmp_path)


def write_config(root: Path, text: str) -> dict[str, str]:
    (root / "config").mkdir()
    (root / "config" / "config.toml").write_text(text)
    return {"SBX_HOME": str(root)}


def test_the_dashboard_s_tables_are_read_from_config(tmp_path: Path) -> None:
    text = '[ui]\ntheme = "light"\nglyphs = "ascii"\nmouse = false\nread_only = true\n[keys]\nremove = "x"\n'
    settings = load(write_config(tmp_path, text), cwd=tmp_path)
    assert settings.ui == Ui("light", "ascii", mouse=False, read_only=True)
    assert settings.keys == {"remove": "x"}


def test_a_config_of_windows_is_read_and_what_is_none_is_told_without_numbers_of_the_system(tmp_path: Path) -> None:
    environ = write_config(tmp_path, '\ufeffworkdir = "/w"\n')
    assert load(environ, cwd=tmp_path).workdir == "/w"
    file = tmp_path / "config" / "config.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(environ, cwd=tmp_path)
    file.write_text("agent_port = true\n")
    with pytest.raises(UsageError, match="it must be a whole number"):
        load(environ, cwd=tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match=r"config\.toml: Is a directory"):
        load(environ, cwd=tmp_path)


@pytest.mark.parametrize("line", ['theme = "pink"', 'glyphs = "emoji"', "mouse = 7", "nosuch = 1"])
def test_a_look_that_cannot_be_is_refused_by_name(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match="ui"):
        load(write_config(tmp_path, f"[ui]\n{line}\n"), cwd=tmp_path)


def test_config_is_below_the_project_file_and_that_below_the_environment(tmp_path: Path) -> None:
    environ = write_config(tmp_path, 'workdir = "/config"\nagent_port = 8200\n[ui]\ntheme = "light"\n')
    assert load(environ, cwd=tmp_path).workdir == "/config"
    (tmp_path / "sandbox.yaml").write_text("workdir: /project\n")
    assert load(environ, cwd=tmp_path).workdir == "/project"
    assert load({**environ, "SBX_WORKDIR": "/env"}, cwd=tmp_path).workdir == "/env"
    assert load(environ, cwd=tmp_path).agent_port == 8200


@pytest.mark.parametrize(
    "text", ["colour = 1\n", "workdir = 5\n", "workdir = \n", 'home = "/x"\n', "agent_port = true\n"]
)
def test_a_config_that_cannot_be_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"config\.toml"):
        load(write_config(tmp_path, text), cwd=tmp_path)


UNTRUSTED = """
image: tools
memory: 512
workdir: /src
context: prod
region: eu-west-1
role: {arn: "arn:aws:iam::1:role/admin"}
network: {egress: {connector_arn: "arn:c"}}
env: {TOKEN: stolen}
"""


def test_a_cloned_project_may_choose_image_and_size_but_nothing_that_reaches_out(tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_text(UNTRUSTED)
    loaded = load({"SBX_HOME": str(tmp_path / "h")}, cwd=tmp_path)
    assert (loaded.image_arn, loaded.memory_mib, loaded.workdir) == ("tools", 512, "/src")
    assert (loaded.context, loaded.region, loaded.execution_role_arn, loaded.egress_connector) == ("", "", "", "")
    assert not loaded.env
    assert "sbx trust" in loaded.notices[0]
    assert "env" in loaded.notices[0]


def test_trust_holds_for_the_content_that_was_trusted_only(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text(UNTRUSTED)
    environ = {"SBX_HOME": str(tmp_path / "h")}
    home = load(environ, cwd=tmp_path).home
    assert trust(tmp_path, home.trusted_file).origin == str(file)
    trusted = load(environ, cwd=tmp_path)
    assert (trusted.context, trusted.env, trusted.notices) == ("prod", {"TOKEN": "stolen"}, ())
    file.write_text(UNTRUSTED.replace("prod", "evil"))
    assert load(environ, cwd=tmp_path).context == ""


def test_a_key_that_nobody_reads_is_told_and_the_provisioners_keys_are_not(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text("project: app\nstack: dev\nbucket: {name: b}\nworkdir: /src\nnetwrok: none\n")
    environ = {"SBX_HOME": str(tmp_path / "h")}
    loaded = load(environ, cwd=tmp_path)
    assert (loaded.workdir, len(loaded.notices)) == ("/src", 1)
    assert "`netwrok`" in loaded.notices[0]
    assert trust(tmp_path, loaded.home.trusted_file).notices == loaded.notices


NO_MAPPINGS = [
    *("- a\n- b\n", "a: [\n", "!!python/object/apply:os.system [id]\n", "\x00", "a: 2001-99-99\n", "[" * 5000),
    "a: {{ cookiecutter.name }}\n",
]


@pytest.mark.parametrize("text", NO_MAPPINGS)
def test_a_setup_yaml_of_another_program_stops_nothing_and_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "setup.yaml").write_text(text)
    loaded = load({"SBX_HOME": str(tmp_path / "h")}, cwd=tmp_path)
    assert len(loaded.notices) == 1 and "another program's" in loaded.notices[0]
    with pytest.raises(UsageError, match=r"setup\.yaml"):
        load({"SBX_HOME": str(tmp_path / "h")}, cwd=tmp_path, setup_file="setup.yaml")


@pytest.mark.parametrize("text", NO_MAPPINGS)
def test_a_project_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "sandbox.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"sandbox\.yaml"):
        load({"SBX_HOME": str(tmp_path / "h")}, cwd=tmp_path)


def test_setup_yaml_counts_only_where_there_is_no_sandbox_yaml(tmp_path: Path) -> None:
    (tmp_path / "setup.yaml").write_text("workdir: /old\n")
    environ = {"SBX_HOME": str(tmp_path / "h")}
    assert load(environ, cwd=tmp_path).workdir == "/old"
    (tmp_path / "sandbox.yaml").write_text("workdir: /new\n")
    assert load(environ, cwd=tmp_path).workdir == "/new"


def test_every_setting_but_the_computed_ones_can_be_set_somewhere() -> None:
    named = set(settings_module._VARIABLES.values()) | {"memory_mib", "env", "profile", "keys", "ui", "watch"}
    assert {one.name for one in fields(Settings)} - named == {"home", "sources", "notices", "is_far_terminal"}
