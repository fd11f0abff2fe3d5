"""Lets this process change files in some folders only, by the kernel: Linux's Landlock.

It holds for what libraries in C do and for programs that are started, too. It cannot be undone.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable

# The numbers of the system calls, the same on all processors, and of rules for folders.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_WHICH_VERSION = 1
_FOLDER_RULE = 1
_NO_NEW_PRIVILEGES = 38
# Rights, by the version that has them first: to write files, to remove and to make things; to move
# them to another folder; to cut files off.
_RIGHTS = ((1, 1 << 1 | 0b1_1111_1111 << 4), (2, 1 << 13), (3, 1 << 14))


def change_files_only_in(folders: Iterable[str]) -> bool:
    """Returns whether the kernel sees to it; it holds for this thread and those it starts."""
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    none = ctypes.c_void_p(None)
    zero = ctypes.c_size_t(0)
    version = call(ctypes.c_long(_CREATE), none, zero, ctypes.c_uint(_WHICH_VERSION))
    rights = sum(right for since, right in _RIGHTS if since <= version)
    if not rights:
        return False
    handled = struct.pack("=Q", rights)
    size = ctypes.c_size_t(len(handled))
    rules = call(ctypes.c_long(_CREATE), handled, size, ctypes.c_uint(0))
    if rules < 0:
        return False
    try:
        for folder in folders:
            _allow(call, rules, rights, folder)
        nothing = [ctypes.c_ulong(0)] * 3
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), *nothing)
        return call(ctypes.c_long(_RESTRICT), ctypes.c_int(rules), ctypes.c_uint(0)) == 0
    finally:
        os.close(rules)


def _allow(call: "ctypes._NamedFuncPointer", rules: int, rights: int, folder: str) -> None:
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        rule = struct.pack("=Qi", rights, opened)
        kind = ctypes.c_int(_FOLDER_RULE)
        call(ctypes.c_long(_ADD), ctypes.c_int(rules), kind, rule, ctypes.c_uint(0))
    finally:
        os.close(opened)
