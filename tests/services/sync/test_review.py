"""Taking over what the sandbox changed, deciding between versions, and taking it back."""

from __future__ import annotations

from pathlib import Path

from sbxguest.tree import Entry, Kind, State
from sbxtui.services.sync.compare import patch_of
from sbxtui.services.sync.model import Side
from sbxtui.services.sync.resolve import resolve
from sbxtui.services.sync.review import Reviewed, may_run, only_seen, review, take_over
from sbxtui.services.sync.undo import undo
from sbxtui.services.sync.views import ChangeView
from tests.services.sync.pairs import TwoFolders, two_folders


def words(two: TwoFolders, reviewed: Reviewed) -> dict[str, str]:
    views = [ChangeView.of(change, two.pair.there.states) for change in reviewed.changes]
    return {view.path_text: view.word for view in views}


async def pulled(two: TwoFolders, *paths: bytes) -> Reviewed:
    reviewed = await review(two.pair, paths)
    with two.intake() as intake:
        await take_over(two.pair, intake, reviewed, lambda size_bytes: None)
    return reviewed


async def synced(two: TwoFolders) -> None:
    (two.here / "d").mkdir()
    for name in ("edited", "deleted", "kept", "d/f"):
        (two.here / name).write_text("base\n")
    await two.cycle.compare()


async def test_a_review_names_every_change_of_the_sandbox_and_changes_nothing(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs\n")
        (two.there / "deleted").unlink()
        (two.there / "new").mkdir()
        (two.there / "new" / "f").write_text("n")
        (two.there / "kept").chmod(0o755)
        reviewed = await review(two.pair)
        assert words(two, reviewed) == {
            "edited": "edited",
            "deleted": "deleted",
            "new": "folder",
            "new/f": "new",
            "kept": "mode",
        }
        assert two.both("edited") == ("base\n", "theirs\n")
        assert (two.here / "deleted").exists()


async def test_what_is_taken_over_is_agreed_on_and_can_be_taken_back(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs\n")
        (two.there / "deleted").unlink()
        (two.there / "new").mkdir()
        (two.there / "new" / "f").write_bytes(bytes(300_000))
        (two.there / "kept").chmod(0o755)
        await pulled(two)
        assert two.both("edited") == ("theirs\n", "theirs\n")
        assert two.both("deleted") == (None, None)
        assert (two.here / "new" / "f").read_bytes() == bytes(300_000)
        assert (two.here / "kept").stat().st_mode & 0o100
        assert not (await review(two.pair)).changes
        (batch,) = [one for one in two.pair.ancestors.batches() if one.word == "pull"]
        with two.intake() as intake:
            outcomes = await undo(two.pair, intake, batch)
        assert not outcomes.failed
        assert two.both("edited") == ("base\n", "theirs\n")
        assert two.both("deleted") == ("base\n", None)
        assert not (two.here / "new").exists()
        assert not (two.here / "kept").stat().st_mode & 0o100
        again = await review(two.pair)
        assert set(words(two, again)) == {"edited", "deleted", "new", "new/f", "kept"}


async def test_after_taking_back_nothing_is_pushed_over_the_sandboxs_edits(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs\n")
        await pulled(two)
        with two.intake() as intake:
            await undo(two.pair, intake, two.pair.ancestors.batches()[0])
        await two.cycle.compare()
        await two.cycle.follow({b""})
        assert two.both("edited") == ("base\n", "theirs\n")


async def test_only_the_paths_that_were_asked_for_are_taken_over_with_the_folders_above(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs\n")
        (two.there / "a" / "b").mkdir(parents=True)
        (two.there / "a" / "b" / "f").write_text("x")
        (two.there / "a" / "other").write_text("x")
        await pulled(two, b"a/b")
        assert two.both("a/b/f") == ("x", "x")
        assert two.both("a/other") == (None, "x")
        assert two.both("edited") == ("base\n", "theirs\n")


async def test_only_what_a_person_has_seen_is_taken_over_after_a_second_look(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("seen\n")
        (two.there / "kept").write_text("seen\n")
        seen = await review(two.pair)
        (two.there / "edited").write_text("unseen\n")
        (two.there / "new").write_text("unseen\n")
        agreed, changed = only_seen(seen, await review(two.pair))
        assert changed == {b"edited", b"new"}
        assert [change.path for change in agreed.changes] == [b"kept"]


async def test_an_edit_made_here_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs\n")
        reviewed = await review(two.pair)
        (two.here / "edited").write_text("mine\n")
        with two.intake() as intake:
            outcomes = await take_over(two.pair, intake, reviewed, lambda size_bytes: None)
        assert outcomes.moved_on == {b"edited"}
        assert two.both("edited") == ("mine\n", "theirs\n")


async def test_links_out_of_the_folder_and_git_itself_are_never_taken_over(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "out").symlink_to("../../etc/passwd")
        (two.there / "abs").symlink_to("/etc/passwd")
        (two.there / "in").symlink_to("d/f")
        (two.there / ".git" / "hooks").mkdir(parents=True)
        (two.there / ".git" / "hooks" / "pre-commit").write_text("evil")
        reviewed = await pulled(two)
        assert reviewed.refused == {b"out": "unsafe_link", b"abs": "unsafe_link"}
        assert (two.here / "in").is_symlink()
        assert not (two.here / "out").is_symlink() and not (two.here / ".git").exists()


async def test_a_sandbox_that_deleted_nearly_everything_has_to_be_looked_at_first(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for number in range(20):
            (two.here / f"f{number}").write_text("x")
        await two.cycle.compare()
        for number in range(18):
            (two.there / f"f{number}").unlink()
        reviewed = await review(two.pair)
        assert [halt.code for halt in reviewed.halts] == ["many_local_deletes"]


async def test_a_conflict_is_decided_for_one_side_and_the_other_version_can_be_had_back(tmp_path: Path) -> None:
    for winner, expected in ((Side.LOCAL, "mine\n"), (Side.GUEST, "theirs\n")):
        with two_folders(tmp_path / winner.value) as two:
            await synced(two)
            (two.here / "edited").write_text("mine\n")
            (two.there / "edited").write_text("theirs\n")
            assert [one.path for one in (await review(two.pair)).conflicts] == [b"edited"]
            with two.intake() as intake:
                outcomes = await resolve(two.pair, intake, b"edited", winner)
                assert outcomes.done == [b"edited"]
                assert two.both("edited") == (expected, expected)
                assert not (await review(two.pair)).conflicts
                await undo(two.pair, intake, two.pair.ancestors.batches()[0])
            assert sorted(text or "" for text in two.both("edited")) == ["mine\n", "theirs\n"]


async def test_a_folder_against_a_file_is_decided_as_a_whole(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "p").mkdir()
        (two.here / "p" / "a").write_text("mine")
        (two.there / "p").write_text("theirs")
        await review(two.pair)
        with two.intake() as intake:
            await resolve(two.pair, intake, b"p", Side.LOCAL)
        assert two.both("p/a") == ("mine", "mine")
        (two.there / "p" / "b").write_text("new")


async def test_a_patch_says_what_taking_over_would_change(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        (two.there / "edited").write_text("theirs")
        (two.there / "binary").write_bytes(b"\0\1")
        (two.there / "deleted").unlink()
        reviewed = await review(two.pair)
        lines = [line for change in reviewed.changes for line in await patch_of(two.pair, change)]
        assert "Binary files a/binary and b/binary differ" in lines
        at = lines.index("diff --git a/edited b/edited")
        assert lines[at + 1 : at + 7] == [
            "--- a/edited",
            "+++ b/edited",
            "@@ -1 +1 @@",
            "-base",
            "+theirs",
            "\\ No newline at end of file",
        ]
        assert "deleted file mode 100644" in lines


def test_files_this_machine_may_run_are_marked() -> None:
    assert all(map(may_run, [b".envrc", b"web/package.json", b".github/workflows/ci.yml", b".vscode/tasks.json"]))
    assert not any(map(may_run, [b"src/main.py", b"README.md", b"githubx/f"]))


async def test_a_sandbox_that_lists_what_no_folder_can_hold_is_not_believed(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await synced(two)
        two.pair.there.take_all([Entry(b"f", State(Kind.FILE, b"d" * 32)), Entry(b"f/below", State(Kind.DIR))])
        try:
            two.pair.there.listing().check()
        except Exception as exc:  # noqa: BLE001 - any refusal will do
            assert "below something that is no folder" in str(exc)
        else:
            raise AssertionError("it was believed")
