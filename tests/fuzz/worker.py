"""Runs programs of one law, one after the other: `python -m tests.fuzz.worker LAW SEED COUNT`.

It ends before COUNT when it has become large, because compiled programs fill the memory. It prints
a line of JSON before and after each program, so that whoever reads knows which one was running when
this process died or was ended.
"""

import importlib
import json
import resource
import sys
import traceback
import warnings

import conftest  # noqa: F401  the devices, and how programs are compiled: as in tests

# Bytes of memory with which a process ends. `ru_maxrss` is in kilobytes, on macOS in bytes.
LARGE = 2**31
UNIT = 1 if sys.platform == "darwin" else 1024


def main(law: str, first: int, count: int) -> None:
    """Runs the programs with the seeds `first` to `first + count - 1`."""
    warnings.simplefilter("error")  # as in tests
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning, "keras")
    module = importlib.import_module(f"tests.fuzz.test_{law}")
    for seed in range(first, first + count):
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT > LARGE:
            return
        _tell(seed=seed)
        try:
            _tell(seed=seed, comparisons=module.program(seed))
        except AssertionError as finding:
            _tell(seed=seed, finding=str(finding))
        except Exception:
            _tell(seed=seed, finding=traceback.format_exc())


def _tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
