"""Both programs of each pair of `examples/pairs` run, and print the same."""

from pathlib import Path
from typing import Any

import pytest

from tests import pairs
from tests.cli import record
from tests.processes import free_addresses


@pytest.mark.parametrize("name", pairs.NAMES)
def test_tensorflow_and_its_port_print_the_same(name: str, tensorflow: Any, tmp_path: Path):
    program = pairs.PAIRS / f"{name}_tensorflow.py"
    expected = record.output_of(program, free_addresses(2))
    pairs.assert_same(pairs.output_of_replicax(name, tmp_path), expected)
