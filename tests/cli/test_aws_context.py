"""An AWS context: the same code with the person's own credentials, proved against a server that speaks the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sbx import Sbx, sbx_home

pytestmark = pytest.mark.long

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "SSL_CERT_FILE")


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """A person with credentials whose context `cloud` is another home's local cloud."""
    with sbx_home(tmp_path_factory.mktemp("server")) as server:
        variables = server.ok("local", "env", "--json").json
        with sbx_home(tmp_path_factory.mktemp("person"), **{key: variables[key] for key in CREDENTIALS}) as person:
            person.ok(
                *("context", "add", "cloud", "--region", variables["AWS_REGION"]),
                *("--endpoint-url", variables["AWS_ENDPOINT_URL_LAMBDA_MICROVMS"]),
            )
            person.ok("context", "use", "cloud")
            yield person
            person("rm", "--all", "--yes")


def test_a_sandbox_of_an_aws_context_has_the_whole_life(aws: Sbx, tmp_path: Path) -> None:
    created = aws.ok("create", "remote", "-m", "512", "--json").json
    assert (created["context"], created["network"]) == ("cloud", "managed")
    assert aws.ok("exec", "remote", "--", "echo", "hi").out == "hi"
    refused = aws("secret", "set", "remote", "API_TOKEN", "--host", "api.example.com", stdin=b"a value")
    assert (refused.code, "Secrets Manager" in refused.err) == (5, True)
    for line in (("fork", "remote"), ("snapshot", "create", "remote"), ("snapshot", "ls")):
        told = aws(*line)
        assert (told.code, "does not copy sandboxes" in told.err) == (5, True)
    record = aws.ok("inspect", "remote").json["record"]
    assert record["max_duration_s"] == 28_800
    assert record["idle"] == {"max_idle_s": 900, "suspended_s": 28_800, "auto_resume": True}
    aws.ok("stop", "remote")
    assert aws.ok("exec", "remote", "--", "echo", "woken").out == "woken"
    aws.ok("rm", "remote", "--yes")


def test_what_nothing_would_enforce_is_refused_before_anything_is_billed(aws: Sbx) -> None:
    for network in ("none", "allow=example.com:443"):
        refused = aws("--json", "create", "bare", "--network", network)
        assert (refused.code, refused.error["code"]) == (9, "policy_denied")
    assert aws.ok("ls", "--json").json == []


def test_a_machine_without_a_name_is_listed_and_can_be_adopted(aws: Sbx, tmp_path: Path) -> None:
    sandbox_id = aws.ok("create", "mine", "-m", "512", "--json").json["id"]
    with sbx_home(tmp_path / "other", **aws.env) as other:
        contexts = {row["name"]: row for row in aws.ok("context", "ls", "--json").json}
        endpoint = contexts["cloud"]["endpoint_url"]
        other.ok("context", "add", "cloud", "--region", "local-1", "--endpoint-url", endpoint)
        other.ok("context", "use", "cloud")
        [row] = other.ok("ls", "--json").json
        assert (row["id"], row["name"], row["tracked"]) == (sandbox_id, None, False)
        unknown = other("--json", "adopt", "no-such-machine")
        assert (unknown.code, unknown.error["details"]) == (4, {"adoptable": [sandbox_id]})
        assert sandbox_id in unknown.error["hint"]
        assert other.ok("adopt", sandbox_id[:20]).out == "mine"
        assert "has its name already" in other("adopt", "mine").err
        assert "every machine of it has a name" in other("adopt", "no-such-machine").err
        assert other.ok("exec", "mine", "--", "echo", "adopted").out == "adopted"
        again = other("--json", "adopt", sandbox_id, "twice")
        assert (again.code, again.error["code"]) == (5, "conflict")
    aws.ok("rm", "mine", "--yes")


def test_credentials_of_another_account_change_nothing(aws: Sbx) -> None:
    aws.ok("create", "kept", "-m", "512")
    stored = [row for row in aws.ok("context", "ls", "--json").json if row["name"] == "cloud"]
    assert stored[0]["account_id"] == "000000000000"
    aws.ok(
        *("context", "add", "wrong-keys", "--region", "local-1", "--endpoint-url", stored[0]["endpoint_url"]),
    )
    wrong = Sbx(aws.home, {**aws.env, "AWS_SECRET_ACCESS_KEY": "not-it"})
    refused = wrong("--json", "--context", "wrong-keys", "create", "x", "-m", "512")
    assert (refused.code, refused.error["code"]) == (6, "access_denied")
    aws.ok("rm", "kept", "--yes")


def test_another_region_never_makes_a_sandbox_look_gone(aws: Sbx) -> None:
    aws.ok("create", "here", "-m", "512")
    for words in (["ls"], ["rm", "here", "--yes"], ["prune", "--yes"]):
        refused = aws("--json", "--region", "eu-west-1", *words)
        assert (refused.code, refused.error["code"]) == (2, "usage")
    assert [row["name"] for row in aws.ok("ls", "--json").json] == ["here"]
    aws.ok("rm", "here", "--yes")


def test_names_and_outputs_of_the_seed_are_adopted_once(aws: Sbx, tmp_path: Path) -> None:
    sandbox_id = aws.ok("create", "seeded", "-m", "512", "--json").json["id"]
    state, infra = tmp_path / "state.json", tmp_path / "infra.json"
    state.write_text(json.dumps({"web": {"microvm_id": sandbox_id}}))
    infra.write_text(
        json.dumps({"outputs": {"image_arn": "arn:aws:lambda:local-1:000000000000:microvm-image:sbx-base-512"}})
    )
    before = (state.read_bytes(), infra.read_bytes())
    seeded = {**aws.env, "AGENT_SANDBOX_STATE": str(state), "AGENT_SANDBOX_INFRA_STATE": str(infra)}
    with sbx_home(tmp_path / "switcher", **seeded) as switcher:
        endpoint = {row["name"]: row for row in aws.ok("context", "ls", "--json").json}["cloud"]["endpoint_url"]
        switcher.ok("context", "add", "cloud", "--region", "local-1", "--endpoint-url", endpoint)
        switcher.ok("context", "use", "cloud")
        first = switcher.ok("ls", "--json")
        assert [(row["name"], row["id"]) for row in first.json] == [("web", sandbox_id)]
        assert "web" in first.err
        assert switcher.ok("create", "from-outputs", "--json").json["memory_mib"] == 512
        switcher.ok("rm", "from-outputs", "--yes")
        assert "adopted" not in switcher.ok("ls").err
    assert (state.read_bytes(), infra.read_bytes()) == before
    aws.ok("rm", "seeded", "--yes")
