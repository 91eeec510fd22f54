"""The folder a guest stays in when it has no file system of its own and shares the host's files.

Against accidents, not attacks: jobs there are plain processes of the host and need no guest to reach its files.
"""

from __future__ import annotations

import os


def is_below(path: str, root: str, *, follows: bool = True) -> bool:
    """Whether `path` leads to `root` or below it, every link on the way followed. An empty `root` holds everything.

    Without `follows` the last name is the thing itself, link or not: what removing and renaming act on.
    """
    if not root:
        return True
    folder, name = os.path.split(path)
    if follows or name in ("", ".", ".."):
        folder = path
    real, real_root = os.path.realpath(folder), os.path.realpath(root)
    return real == real_root or real.startswith(real_root.rstrip("/") + "/")
