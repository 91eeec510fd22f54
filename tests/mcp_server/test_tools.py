"""Every family of tools on a real sandbox, as an agent uses them."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ElicitResult, ImageContent, PromptReference, ResourceLink, ResourceTemplateReference, TextContent

from sbxtui.mcp_server.options import Options
from tests.support.mcp_inproc import mcp_inproc
from tests.support.mcp_process import ERAS, Era, data_of, error_of
from tests.support.sbx import Sbx, is_running_in

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DEADLINE_S = 60

pytestmark = pytest.mark.long


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return data_of(await client.call_tool(tool, arguments))


async def refused(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return error_of(await client.call_tool(tool, arguments))


async def test_a_command_tells_how_it_ended_whatever_way_that_was(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx) as client:
        killed = await call(client, "sandbox_shell", name=app, command="echo first; kill -KILL $$")
        assert (killed["exit_code"], killed["signal"], killed["stdout"]) == (137, 9, "first\n")
        late = await call(client, "sandbox_shell", name=app, command="echo begun; sleep 60", timeout_ms=500)
        assert (late["exit_code"], late["timed_out"], late["stdout"]) == (124, True, "begun\n")
        missing = await call(client, "sandbox_exec", name=app, command="no-such-program")
        assert missing["exit_code"] == 127
        typed = await call(client, "sandbox_exec", name=app, command="cat", stdin_base64="AP8=")
        assert (typed["stdout"], typed["stdout_total_bytes"]) == ("\x00\ufffd", 2)
        placed = await call(client, "sandbox_shell", name=app, command="pwd; echo $A", cwd="/tmp", env={"A": "b c"})
        assert placed["stdout"] == "/tmp\nb c\n"
        quiet = await call(client, "sandbox_exec", name=app, command="cat")
        assert (quiet["stdout"], quiet["exit_code"]) == ("", 0)
        result = await client.call_tool("sandbox_shell", {"name": app, "command": "seq 1000000"})
        flood = data_of(result)
        assert flood["stdout_truncated"] and flood["stdout_total_bytes"] == 6_888_896
        assert flood["stdout"].startswith("1\n2\n") and flood["stdout"].endswith("999999\n1000000\n")
        (link,) = [one for one in result.content if isinstance(one, ResourceLink)]
        raw = await client.read_resource(f"{link.uri}?len=4&encoding=base64")
        assert raw.contents[0].text == base64.b64encode(b"1\n2\n").decode()  # type: ignore[union-attr]  # it is text
        more = await client.read_resource(f"{link.uri}?from=1000&len=20")
        counted = "".join(f"{number}\n" for number in range(1, 1_000))
        assert more.contents[0].text == counted[1_000:1_020]  # type: ignore[union-attr]  # it is text
        wrong: tuple[dict[str, Any], ...] = (
            {"stdin": "a", "stdin_base64": "YQ=="},
            {"timeout": 1, "timeout_ms": 1},
            {"volumes": []},
        )
        for arguments in wrong:
            told = await refused(client, "sandbox_exec", name=app, command="x", **arguments)
            assert told["code"] == "invalid_argument"


async def test_what_takes_long_becomes_a_session_that_others_see_and_use(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx) as client:
        begun = await call(client, "sandbox_shell", name=app, command="echo one; read line; echo $line", wait_ms=1)
        assert begun["state"] in ("running", "exited")
        line = {"command": "cat; echo over", "shell": True, "stdin": True}
        session = await call(client, "sandbox_exec_start", name=app, **line)
        words = {"session_id": session["session_id"]}
        assert session["session_id"] in sbx.ok("jobs", app, "-q").out
        # One that is waited for keeps nobody from another.
        patient = asyncio.create_task(call(client, "sandbox_exec_poll", **words, wait_ms=45_000))
        assert (await call(client, "sandbox_exec", name=app, command="echo", args=["meanwhile"]))["exit_code"] == 0
        assert not patient.done()
        # What is written is read in that order, however soon one call follows on the other.
        await asyncio.gather(*(call(client, "sandbox_exec_write_stdin", **words, data=letter) for letter in "hello\n"))
        patient.cancel()
        said = await call(client, "sandbox_exec_poll", **words, wait_ms=1_000)
        while "hello" not in said["stdout"]:
            said = await call(client, "sandbox_exec_poll", **words, wait_ms=1_000)
        assert (said["state"], said["cursor"]) == ("running", 6)
    # The server that began it is gone; another goes on with it.
    async with mcp_inproc(sbx) as client:
        await call(
            client, "sandbox_exec_write_stdin", **words, data_base64=base64.b64encode(b"more").decode(), close=True
        )
        ended = await call(client, "sandbox_exec_poll", **words, cursor=6, wait_ms=45_000)
        assert (ended["state"], ended["exit_code"], ended["stdout"]) == ("exited", 0, "moreover\n")
        typed = await call(client, "sandbox_exec_start", name=app, command="cat", tty=True)
        await call(client, "sandbox_exec_signal", session_id=typed["session_id"], signal="KILL")
        last = await call(client, "sandbox_exec_close", session_id=typed["session_id"])
        assert (last["state"], last["signal"]) == ("exited", 9)
        assert (await refused(client, "sandbox_exec_poll", session_id="f" * 24))["code"] == "not_found"
        over = await refused(client, "sandbox_exec_signal", session_id=typed["session_id"], signal="TERM")
        assert over["code"] in ("conflict", "not_found")


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_ends_its_command_and_the_next_call_works(sbx: Sbx, app: str, era: Era) -> None:
    line = f"sleep 1234.{ERAS.index(era)}"

    async def runs() -> bool:
        return await asyncio.to_thread(is_running_in, sbx, app, line)

    async with mcp_inproc(sbx, era=era) as client:
        running = asyncio.ensure_future(client.call_tool("sandbox_shell", {"name": app, "command": f"{line}; true"}))
        async with asyncio.timeout(DEADLINE_S):
            while not await runs():
                pass
            running.cancel()
            while await runs():
                pass
        assert (await call(client, "sandbox_exec", name=app, command="echo", args=["on"]))["stdout"] == "on\n"


async def test_files_are_written_read_and_moved_as_text_bytes_and_pictures(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx) as client:
        await call(client, "sandbox_fs_write", name=app, path="f/a.bin", content="AP8A", encoding="base64", mode="600")
        read = await call(client, "sandbox_fs_read", name=app, path="f/a.bin", encoding="base64")
        assert (read["content"], read["mode"], read["total_bytes"]) == ("AP8A", "0600", 3)
        await call(client, "sandbox_fs_write", name=app, path="f/text", content="äöü and more")
        part = await call(client, "sandbox_fs_read", name=app, path="f/text", offset=2, max_bytes=3)
        assert (part["content"], part["truncated"], part["returned_bytes"], part["total_bytes"]) == ("ö", True, 2, 13)
        stale = await refused(client, "sandbox_fs_write", name=app, path="f/text", content="x", if_sha256="0" * 64)
        assert stale["code"] == "conflict"
        await call(
            client,
            "sandbox_fs_write",
            name=app,
            path="f/p.png",
            content=base64.b64encode(PNG).decode(),
            encoding="base64",
        )
        picture = await client.call_tool("sandbox_fs_read", {"name": app, "path": "f/p.png"})
        (image,) = [one for one in picture.content if isinstance(one, ImageContent)]
        assert (base64.b64decode(image.data), image.mime_type) == (PNG, "image/png")
        await call(client, "sandbox_fs_mkdir", name=app, path="f/deep/er")
        await call(client, "sandbox_fs_copy", name=app, src="f/text", dst="f/deep")
        await call(client, "sandbox_fs_rename", name=app, **{"from": "f/deep/text", "to": "f/deep/er/new"})
        assert (await call(client, "sandbox_fs_exists", name=app, path="f/deep/er/new"))["exists"]
        assert not (await call(client, "sandbox_fs_exists", name=app, path="f/deep/text"))["exists"]
        assert (await call(client, "sandbox_fs_stat", name=app, path="f/deep"))["kind"] == "dir"
        first = await call(client, "sandbox_fs_list", name=app, path="f", limit=2)
        rest = await call(client, "sandbox_fs_list", name=app, path="f", limit=2, cursor=first["next_cursor"])
        assert [one["path"] for one in first["entries"] + rest["entries"]] == ["a.bin", "deep", "p.png", "text"]
        assert (await refused(client, "sandbox_fs_list", name=app, path="f", cursor="x"))["code"] == "invalid_argument"
        assert (await refused(client, "sandbox_fs_remove", name=app, path="f"))["code"] == "invalid_argument"
        asked = await refused(client, "sandbox_fs_remove", name=app, path="f", recursive=True)
        assert asked["code"] == "confirm_required" and asked["details"]["would_lose"]
        dry = await call(client, "sandbox_fs_remove", name=app, path="f", recursive=True, dry_run=True)
        assert (dry["removed"], dry["would_remove"]["kind"]) == (False, "dir")
        assert (await call(client, "sandbox_fs_remove", name=app, path="f", recursive=True, confirm=True))["removed"]
        assert (await refused(client, "sandbox_fs_read", name=app, path="f/text"))["code"] == "not_found"


async def test_copies_to_and_from_this_machine_stay_in_the_allowed_folder(sbx: Sbx, app: str, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "tree/deep").mkdir(parents=True)
    (allowed / "tree/deep/file").write_text("in a tree")
    (tmp_path / "secret").write_text("secret")
    (allowed / "link").symlink_to(tmp_path)
    async with mcp_inproc(sbx, env={"SBX_MCP_HOST_PATHS": str(allowed)}) as client:
        copied = await call(client, "sandbox_fs_copy_from_host", name=app, host_path=f"{allowed}/tree", dest="got")
        assert (copied["copied"], copied["files"]) == (True, 1)
        read = await call(client, "sandbox_fs_read", name=app, path="got/deep/file")
        assert read["content"] == "in a tree"
        await call(
            client, "sandbox_fs_copy_from_host", name=app, hostPath=f"{allowed}/tree/deep/file", guestPath="got/"
        )
        assert (await call(client, "sandbox_fs_exists", name=app, path="got/file"))["exists"]
        await call(client, "sandbox_fs_copy_to_host", name=app, src="got", host_path=f"{allowed}/back")
        assert (allowed / "back/deep/file").read_text() == "in a tree"
        into = {"name": app, "src": "got/file", "host_path": f"{allowed}/back"}
        assert (await call(client, "sandbox_fs_copy_to_host", **into, dry_run=True))["replaces"] is True
        assert (await refused(client, "sandbox_fs_copy_to_host", **into))["code"] == "confirm_required"
        assert (await call(client, "sandbox_fs_copy_to_host", **into, overwrite=True))["copied"]
        for path in (f"{tmp_path}/secret", f"{allowed}/link/secret", f"{allowed}/link/new/file", "/etc/passwd"):
            outside = await refused(client, "sandbox_fs_copy_to_host", name=app, src="got/file", host_path=path)
            assert outside["code"] == "host_path_denied"
            outside = await refused(client, "sandbox_fs_copy_from_host", name=app, host_path=path, dest="x")
            assert outside["code"] == "host_path_denied"
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize("era", ERAS)
async def test_the_person_behind_a_client_is_asked_before_anything_is_lost(sbx: Sbx, app: str, era: Era) -> None:
    questions: list[str] = []
    answers = [ElicitResult(action="decline"), ElicitResult(action="accept", content={"confirm": True})]

    async def answer(context: object, params: Any) -> ElicitResult:
        questions.append(params.message)
        return answers[len(questions) - 1]

    async with mcp_inproc(sbx, era=era, elicitation_callback=answer) as client:
        await call(client, "sandbox_fs_mkdir", name=app, path="lost/x")
        arguments = {"name": app, "path": "lost", "recursive": True}
        declined = await refused(client, "sandbox_fs_remove", **arguments)
        assert declined["code"] == "confirm_required" and "confirm=true" in declined["hint"]
        assert (await call(client, "sandbox_fs_exists", name=app, path="lost/x"))["exists"]
        assert (await call(client, "sandbox_fs_remove", **arguments))["removed"]
    assert len(questions) == 2 and "lost" in questions[0]


async def test_what_is_seen_of_a_sandbox_is_told(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx) as client:
        await call(client, "sandbox_shell", name=app, command="echo log-line-one; echo log-line-two")
        logs = await call(client, "sandbox_logs_read", name=app, grep="log-line")
        assert logs["lines"] == 2 and "log-line-two" in logs["content"] and logs["truncated"] is False
        after = await call(client, "sandbox_logs_stream", name=app, cursor=logs["cursor"], follow_timeout_ms=100)
        assert "log-line" not in after["content"]
        assert (await call(client, "sandbox_metrics", name=app))["memory_limit_bytes"] > 0
        assert app in [one["name"] for one in (await call(client, "sandbox_metrics_all"))["sandboxes"]]
        stream = await call(client, "sandbox_metrics_stream", name=app, samples=2, interval_ms=100)
        assert len(stream["samples"]) == 2
        assert (await call(client, "sandbox_wait", name=app, target="ready"))["state"] == "RUNNING"
        inspected = await call(client, "sandbox_inspect", name=app)
        assert inspected["record"]["state"] == "RUNNING" and inspected["links"] == []
        assert (await call(client, "sandbox_status", name=app))["state"] == "RUNNING"
        assert (await call(client, "sandbox_status"))["sandboxes"]
        cost = await call(client, "sandbox_cost", name=app)
        assert cost["usd_per_hour"] > 0 and [one["name"] for one in cost["sandboxes"]] == [app]
        assert (await refused(client, "sandbox_cost", name=app, usd="much"))["code"] == "invalid_argument"
        assert (await call(client, "sandbox_cost", name=app))["sandboxes"][0]["name"] == app
        assert (await refused(client, "sandbox_keep_awake", name=app))["code"] == "conflict", "no job runs"
        assert (await refused(client, "sandbox_keep_awake", name=app, until="soon"))["code"] == "invalid_argument"
        assert (await call(client, "sandbox_keep_awake", name=app, until="stop"))["kept_awake"] is False
        newest = await call(client, "sandbox_events", name=app, limit=5)
        assert newest["events"][-1]["seq"] == newest["last_seq"]
        assert (await call(client, "sandbox_events", after_seq=newest["last_seq"]))["events"] == []
        assert (await call(client, "runtime_check"))["works"] is True
        assert (await call(client, "runtime_install"))["installed"] is True
        assert 512 in (await call(client, "sandbox_capabilities"))["memory_mib"]
        images = (await call(client, "image_list"))["images"]
        assert (await call(client, "image_inspect", image_arn=images[0]["arn"]))["versions"]
        assert (await refused(client, "image_remove", image_arn=images[0]["arn"], confirm=True))[
            "code"
        ] == "unsupported"
        stopped = await call(client, "sandbox_stop", name=app)
        assert "suspended" in stopped["message"]
        assert (await call(client, "sandbox_start", name=app))["message"] == "running"


async def test_a_sandbox_whose_making_fails_in_the_end_is_there_no_more(
    sbx: Sbx, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine is there by then; its guest is not heard, and nobody waits for it.
    monkeypatch.setattr("sbxtui.services.launch._READY_DEADLINE_S", 0.0)
    fault_id = sbx.ok("local", "fault", "add", "html-502", "--op", "endpoint").out.strip()
    async with mcp_inproc(sbx) as client:
        try:
            told = await refused(client, "sandbox_create", name="half", memory=512)
        finally:
            sbx.ok("local", "fault", "clear", fault_id)
        assert told["code"] in ("backend_unavailable", "timeout")
        listed = await call(client, "sandbox_list", all=True)
        assert "half" not in [one["name"] for one in listed["sandboxes"]]
        made = [one["kind"] for one in (await call(client, "sandbox_events", name="half"))["events"]]
        assert {"sandbox.tracked", "sandbox.removed"} <= set(made)


async def test_resources_prompts_and_completions_are_there_under_old_names_too(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx) as client:

        async def read(uri: str) -> Any:
            (content,) = (await client.read_resource(uri)).contents
            return json.loads(content.text) if content.mime_type == "application/json" else content.text  # type: ignore[union-attr]

        assert app in [one["name"] for one in await read("sbx://sandboxes")]
        for path in ("runtime", "images", "policy", "schemas/sandbox-create"):
            assert await read(f"agent-sandbox://{path}") == await read(f"sbx://{path}")
        options = (await read("sbx://schemas/sandbox-create"))["options"]
        assert "labels" in options and "user" in (await read("sbx://schemas/sandbox-exec"))["properties"]
        assert (await read(f"sbx://sandboxes/{app}"))["record"]["state"] == "RUNNING"
        assert (await read("sbx://events?limit=1"))[0]["actor"]
        await call(client, "sandbox_fs_write", name=app, path="r/file", content="of a resource")
        assert await read(f"sbx://sandboxes/{app}/files/r/file") == "of a resource"
        assert isinstance(await read(f"sbx://sandboxes/{app}/logs?tail=5"), str)
        for uri in (
            "sbx://no",
            "sbx://sandboxes/no-such",
            "sbx://schemas/no",
            "other://runtime",
            f"sbx://sandboxes/{app}/logs?tail=x",
        ):
            with pytest.raises(Exception, match=r"no resource|no sandbox|no tool|whole number"):
                await client.read_resource(uri)
        prompt = await client.get_prompt("unattended_task", {"task": "count to three"})
        assert isinstance(prompt.messages[0].content, TextContent)
        assert "count to three" in prompt.messages[0].content.text
        with pytest.raises(Exception, match="missing"):
            await client.get_prompt("debug_sandbox", {})
        debug = PromptReference(name="debug_sandbox")
        assert (await client.complete(debug, {"name": "name", "value": "ap"})).completion.values == [app]
        files = ResourceTemplateReference(uri="sbx://sandboxes/{name}/files/{+path}")
        found = await client.complete(files, {"name": "path", "value": "r/f"}, context_arguments={"name": app})
        assert found.completion.values == ["r/file"]
        image = PromptReference(name="unattended_task")
        assert "sbx-base" in (await client.complete(image, {"name": "image", "value": "sbx"})).completion.values


async def test_a_client_of_the_newer_era_that_listens_hears_of_changes(sbx: Sbx, app: str) -> None:
    address = f"sbx://sandboxes/{app}"
    async with mcp_inproc(sbx, era="auto") as client, client.listen(resource_subscriptions=[address]) as heard:
        await asyncio.to_thread(sbx.ok, "label", app, "team=red")
        async with asyncio.timeout(DEADLINE_S):
            assert await anext(aiter(heard)) == ResourceUpdated(address)


async def test_a_client_of_the_older_era_that_subscribed_hears_of_changes(sbx: Sbx, app: str) -> None:
    heard = asyncio.Event()

    async def handle(message: Any) -> None:
        if "updated" in str(getattr(message, "method", "")) or "ResourceUpdated" in type(message).__name__:
            heard.set()

    async with mcp_inproc(sbx, message_handler=handle) as client:
        with pytest.warns(MCPDeprecationWarning, match="removed as of 2026-07-28"):
            await client.session.subscribe_resource(f"sbx://sandboxes/{app}")
        await asyncio.to_thread(sbx.ok, "label", app, "team=blue")
        async with asyncio.timeout(DEADLINE_S):
            await heard.wait()


async def test_a_server_that_only_reads_has_no_tool_that_changes_anything(sbx: Sbx, app: str) -> None:
    async with mcp_inproc(sbx, options=Options(is_read_only=True)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "sandbox_list" in names and not names & {"sandbox_create", "sandbox_exec", "sandbox_fs_write"}
        with pytest.raises(Exception, match="there is no tool"):
            await client.call_tool("sandbox_remove", {"name": app, "confirm": True})
