"""Trees for both ends of the wire; imports the standard library only. Blocking.

As one stream: `pack` and `Unpacker`. Kept equal: what stands where (`entry`), operations and their results (`ops`), and
the streams they travel in (`frames`).
"""

from sbxguest.tree.entry import BadRecord, Entry, Kind, Note, Record, Stamp, State
from sbxguest.tree.ops import Op, OpKind, Outcome, Result, Source
from sbxguest.tree.pack import pack
from sbxguest.tree.report import Problem, TreeError, TreeReport
from sbxguest.tree.unpack import Unpacker

__all__ = [
    "BadRecord",
    "Entry",
    "Kind",
    "Note",
    "Op",
    "OpKind",
    "Outcome",
    "Problem",
    "Record",
    "Result",
    "Source",
    "Stamp",
    "State",
    "TreeError",
    "TreeReport",
    "Unpacker",
    "pack",
]
