"""Trees as streams, for both ends of the wire: pack and unpack. Blocking; imports the standard library only."""

from sbxguest.tree.pack import pack
from sbxguest.tree.report import Problem, TreeError, TreeReport
from sbxguest.tree.unpack import Unpacker

__all__ = ["Problem", "TreeError", "TreeReport", "Unpacker", "pack"]
