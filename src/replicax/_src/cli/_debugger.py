"""`pdb` in a frame of the user's function, where a value was made that is not finite."""

import pdb
import sys
from types import FrameType


def debug(frame: FrameType, what: str) -> None:
    """Asks for commands at a frame, on the terminal; `n` and `s` go on from there.

    Args:
      frame: where to stop.
      what: is said first.
    """
    print(what, file=sys.__stdout__, flush=True)
    debugger = pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__, nosigint=True)
    debugger.reset()
    outer: FrameType | None = frame
    while outer is not None:
        outer.f_trace = debugger.trace_dispatch
        debugger.botframe = outer
        outer = outer.f_back
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
    debugger.interaction(frame, None)
    if debugger.stopframe is debugger.botframe:  # it was told to go on
        sys.settrace(None)
