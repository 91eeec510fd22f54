"""`image` and `local base` with their verbs and flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, destructive, wide
from sbxtui.cli.argtypes import memory_mib, one_or_more, passed_variable


def add_image_verbs(add: Adder) -> None:
    """Add the group."""
    images = add.group("image", "images: what sandboxes are made from")
    listed = images("ls", "images:ls", "list images that can be launched")
    listed.add_argument("--managed", action="store_true", help="the platform's own base images")
    wide(listed)
    _build(images)
    inspect = images("inspect", "images:inspect", "an image with its versions and builds, as JSON")
    inspect.add_argument("image", metavar="IMAGE", help="name or ARN")
    removed = images("rm", "images:rm", "delete images with all their versions, or one version")
    removed.add_argument("images", nargs="+", metavar="IMAGE", help="name or ARN")
    removed.add_argument("--version", dest="image_version", default="", metavar="V", help="only this one, as 2.0")
    prune = images("prune", "images:prune", "delete versions that failed, and those older ones came after")
    keep_help = "keep so many of each image, the newest (default 1)"
    prune.add_argument("--keep", type=one_or_more, default=1, metavar="N", help=keep_help)
    for parser in (removed, prune):
        destructive(parser)


def add_base_verbs(local: Adder) -> None:
    """Add them to the group `local`."""
    bases = local.group("base", "roots of other systems, for images to be built from (FROM)")
    added = bases("add", "bases:add", "make a root known by the name that FROM has; it is copied")
    added.add_argument("name", metavar="NAME", help="as in FROM, like debian:bookworm")
    added.add_argument("source", metavar="FOLDER", help="or a tar of one, as debootstrap and `docker export` make it")
    wide(bases("ls", "bases:ls", "list bases"))
    removed = bases("rm", "bases:rm", "delete a base")
    removed.add_argument("name", metavar="NAME")
    destructive(removed)


def _build(images: Adder) -> None:
    build = images(
        "build",
        "images:build",
        "build an image from a Dockerfile; prints its ARN",
        detail="Build an image from a folder, or a zip, with a Dockerfile at its root, and show what the build says. "
        "A name that is taken gets a further version.",
    )
    build.add_argument("source", nargs="?", default="", metavar="DIR", help="or a zip (default: ./guest, else .)")
    flag: Arguments = build
    flag.add_argument("--name", default="", metavar="NAME", help="of the image (default: the folder's)")
    size_help = "512, 1024, 2048, 4096 or 8192 (default 2048)"
    flag.add_argument("--memory", "-m", type=memory_mib, default=0, metavar="MIB", help=size_help)
    flag.add_argument("--bucket", default="", metavar="NAME", help="for the archive (needed on AWS)")
    flag.add_argument("--role", default="", metavar="ARN", help="that builds it (needed on AWS)")
    env_help = "environment of the image's program; K alone passes on yours"
    flag.add_argument("--env", type=passed_variable, action="append", default=[], metavar="K=V", help=env_help)
    network = "what its RUN may reach: none, internet (the default) or allow=HOST:PORT,… (local)"
    flag.add_argument("--network", default="", metavar="NETWORK", help=network)
    hooks = "have the platform call the hooks of our guest (--hooks) or none (--no-hooks, the default)"
    flag.add_argument("--hooks", action="store_true", help=hooks)
    flag.add_argument("--no-hooks", dest="hooks", action="store_false", help="see --hooks")
