"""The table of `all_reduce.py`."""

from collections.abc import Callable

from _tables import Column, Row, Table


def _size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _milliseconds(size: int) -> Callable[[Row], float | None]:
    def of(row: Row) -> float | None:
        seconds = row["seconds"].get(str(size))
        return None if seconds is None else 1e3 * seconds

    return of


SUMS = Table(
    "rows",
    "Least milliseconds of a sum over the replicas by its size, and the constants that fit them.",
    (
        Column("a sum over (ms)", "what"),
        *(
            Column(_size_text(1 << power), _milliseconds(1 << power), ".3f")
            for power in range(10, 31)
        ),
        Column("latency, us", lambda row: 1e6 * row["latency"], ".0f"),
        Column("GB/s", lambda row: row["bandwidth"] / 1e9, ".2f"),
    ),
)
