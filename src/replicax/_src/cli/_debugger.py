"""`pdb` in a frame of the user's function, where a value was made that is not finite."""

import pdb
import sys
from types import FrameType
from typing import Any


def debug(frame: FrameType, what: str) -> bool:
    """Asks for commands at a frame; returns whether the program is to end.

    Commands that go on step by step, such as `n`, do so from there.

    Args:
      frame: where to stop.
      what: is said first.
    """
    print(what, file=sys.__stdout__, flush=True)
    debugger: Any = pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__, nosigint=True)
    debugger.reset()
    frames = [frame]
    while (outer := frames[-1].f_back) is not None:
        frames.append(outer)
    debugger.botframe = frames[-1]
    debugger.interaction(frame, None)
    if debugger.quitting:
        return True
    if debugger.stopframe is not debugger.botframe:  # it was not told to go on without stops
        for each in frames:
            each.f_trace = debugger.trace_dispatch
        sys.settrace(debugger.trace_dispatch)
    return False
