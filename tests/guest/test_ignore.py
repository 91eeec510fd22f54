"""What a sync leaves out, compared with what git itself says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbxguest.tree.ignore import Rules, RuleTable, texts_of

NAMES = [
    b"a",
    b"b",
    b"ab",
    b"abab",
    b"a.c",
    b"A",
    b"a ",
    b" a",
    b"[a]",
    b"a\\b",
    b"!a",
    b"#a",
    b"a*",
    b"-",
    b"\xffa",
    b"a]",
]
FOLDERS = [b"", b"d", b"d/a.d", b"d/a.d/d", b"ab.d", b"ab.d/d", b"d.d"]


def _put(root: bytes, path: bytes) -> None:
    with open(os.path.join(root, path), "wb"):
        pass


@pytest.fixture(scope="module")
def work_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git work tree with files of awkward names in nested folders, and a link to a folder."""
    root = tmp_path_factory.mktemp("ignore") / "tree"
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30, env=_environment(root))
    raw = os.fsencode(root)
    for folder in FOLDERS:
        os.makedirs(os.path.join(raw, folder), exist_ok=True)
        for name in NAMES:
            _put(raw, os.path.join(folder, name))
    (root / "link").symlink_to("d")
    return root


def _environment(root: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def _walked(root: bytes) -> Iterator[tuple[bytes, bool]]:
    for folder, folders, files in os.walk(root):
        if b".git" in folders:
            folders.remove(b".git")
        below = os.path.relpath(folder, root)
        for name in (*folders, *files):
            yield (
                os.path.normpath(os.path.join(below, name)),
                name in folders and not os.path.islink(os.path.join(folder, name)),
            )


def _ignored_by_git(root: Path, texts: Mapping[bytes, bytes]) -> set[bytes]:
    raw = os.fsencode(root)
    files = [os.path.join(raw, folder, b".gitignore") for folder in texts]
    for file, text in zip(files, texts.values(), strict=True):
        with open(file, "wb") as out:
            out.write(text)
    paths = [path for path, _ in _walked(raw)]
    try:
        asked = subprocess.run(
            ["git", "-c", "core.ignorecase=false", "check-ignore", "--no-index", "--stdin", "-z"],
            cwd=root,
            input=b"".join(b"./" + path + b"\0" for path in paths),
            stdout=subprocess.PIPE,
            timeout=60,
            env=_environment(root),
            check=False,
        )
    finally:
        for file in files:
            os.unlink(file)
    assert asked.returncode in (0, 1)
    return {os.path.normpath(path) for path in asked.stdout.split(b"\0") if path}


def _ignored_by_us(root: Path, texts: Mapping[bytes, bytes]) -> set[bytes]:
    raw = os.fsencode(root)
    found: set[bytes] = set()
    pending = [(b"", Rules().inside(b"", [texts.get(b"", b"")]))]
    while pending:
        folder, rules = pending.pop()
        for entry in os.scandir(os.path.join(raw, folder)):
            path = os.path.join(folder, entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == b".git":
                continue
            if rules.ignores(path, is_folder=is_folder):
                found.add(path)
                if is_folder:
                    found |= {
                        os.path.join(path, below) for below, _ in _walked(os.path.join(raw, path)) if below != b"."
                    }
            elif is_folder:
                pending.append((path, rules.inside(path, [texts.get(path, b"")])))
    return found


def _without_ignore_files(found: set[bytes]) -> set[bytes]:
    return {path for path in found if not path.endswith(b".gitignore")}


ATOMS = st.sampled_from(
    [
        *rb"a b c d A ab a.d link . .d .c / / /**/ **/ * ** *** ? ! # - \xff \ \a \*".split(),
        *rb"[ab] [!a] [^b] [a-c] []a] [[:alpha:]] [[:nope:]] [a [ ] [\]] [a-] [[:a] [--a] [z-a]".split(),
        b" ",
        b"\\ ",
        b"\t",
        b"\xff",
    ]
)
PATTERNS = st.builds(
    lambda negated, anchor, atoms, end: negated + anchor + b"".join(atoms) + end,
    st.sampled_from([b"", b"", b"", b"!"]),
    st.sampled_from([b"", b"", b"/"]),
    st.lists(ATOMS, min_size=1, max_size=5),
    st.sampled_from([b"", b"", b"/", b" ", b"\r"]),
)
TEXTS = st.lists(PATTERNS, min_size=1, max_size=6).map(b"\n".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.dictionaries(st.sampled_from(FOLDERS), TEXTS, min_size=1, max_size=3))
def test_nested_ignore_files_leave_out_exactly_what_git_leaves_out(work_tree: Path, texts: dict[bytes, bytes]) -> None:
    ours, gits = _ignored_by_us(work_tree, texts), _ignored_by_git(work_tree, texts)
    assert ours == _without_ignore_files(gits)


def test_hostile_patterns_take_no_time_to_speak_of(work_tree: Path) -> None:
    text = b"\n".join(
        [b"**/a" * 40 + b"/b", b"*a" * 60 + b"b", b"x/" + b"*a" * 60 + b"b", b"[!b]" * 300, b"**/" * 500 + b"y"]
    )
    rules = Rules().inside(b"", [text])
    deep = b"/".join([b"a"] * 1500)
    assert not rules.ignores(b"x/" + b"a" * 250, is_folder=False)
    assert not rules.ignores(deep, is_folder=False)


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_a_pattern() -> None:
    rules = Rules().inside(b"", [b"\xef\xbb\xbfa\r\nb\r\n"])
    assert [rules.ignores(name, is_folder=False) for name in (b"a", b"b", b"c")] == [True, True, False]


def test_stronger_texts_come_later_and_git_itself_is_always_left_out() -> None:
    rules = Rules().inside(b"", [b"*.pyc\nnode_modules/", b"!node_modules/\n!.git\n"])
    assert rules.ignores(b"x.pyc", is_folder=False)
    assert not rules.ignores(b"node_modules", is_folder=True)
    assert rules.ignores(b".git", is_folder=True)
    assert rules.ignores(b"sub/.GIT", is_folder=False)


def test_ignore_files_are_read_weakest_first_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"a")
    (tmp_path / ".sbxignore").write_bytes(b"!a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".gitignore").symlink_to("../.gitignore")
    (tmp_path / "sub" / ".sbxignore").write_bytes(b"x" * (1024 * 1024 + 1))
    folder = os.open(tmp_path, os.O_RDONLY)
    sub = os.open(tmp_path / "sub", os.O_RDONLY)
    try:
        assert texts_of(folder) == (b"a", b"!a")
        with pytest.raises(OSError, match="too large"):
            texts_of(sub)
    finally:
        os.close(folder)
        os.close(sub)


def test_rules_of_a_whole_tree_hold_for_any_path_however_deep() -> None:
    table = RuleTable({b"": (b"*.log",), b"a": (b"build/\n!keep.log",)})
    inside = table.inside(b"a")
    assert inside is not None
    assert [inside.ignores(b"a/" + name, is_folder=False) for name in (b"x.log", b"keep.log")] == [True, False]
    assert table.inside(b"a/build/x") is None
    assert table.inside(b"/".join([b"d"] * 2000)) is not None
