"""Short forms of many names: Slurm's `n[1-3,7],m5` and `4(x2),3`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_PARTS = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand_hostlist(hostlist: str) -> list[str]:
    """Returns the hosts of a Slurm host list, in its order.

    >>> expand_hostlist("n[1-2],m5,o[09-10].ib")
    ['n1', 'n2', 'm5', 'o09.ib', 'o10.ib']

    Raises:
      ValueError: If the list is not in Slurm's form.
    """
    parts = _PARTS.findall(hostlist)
    if ",".join(parts) != hostlist.rstrip(","):
        raise ValueError(
            f'Invalid hostlist format "{hostlist}". It is a list such as "n[1-3,7],m5".'
        )
    return [host for part in parts for host in _expand_part(part, hostlist)]


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """Returns the numbers of a Slurm list of numbers with repetitions.

    >>> expand_tasks_per_node("3(x2),2,1")
    [3, 3, 2, 1]

    Raises:
      ValueError: If the list is not in Slurm's form.
    """
    counts: list[int] = []
    for part in tasks_per_node.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise ValueError(
                f'Invalid tasks-per-node list format "{tasks_per_node}", at "{part}". It is a list '
                'such as "4(x2),3".'
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def natural_order(name: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts n2 before n10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _expand_part(part: str, hostlist: str) -> Iterator[str]:
    pieces: list[list[str]] = []
    for text in re.split(r"(\[[^\]]*\])", part):
        if not text.startswith("["):
            pieces.append([text])
            continue
        numbers: list[str] = []
        for each in text[1:-1].split(","):
            match = _RANGE.fullmatch(each)
            if match is None:
                raise ValueError(
                    f'Invalid hostlist format "{hostlist}": "{each}" in "{part}" is not a number '
                    'or a range such as "3-5".'
                )
            first, last = match[1], match[2] or match[1]
            numbers += [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
        pieces.append(numbers)
    return map("".join, itertools.product(*pieces))
