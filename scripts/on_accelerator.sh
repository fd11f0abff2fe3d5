#!/usr/bin/env bash
# Everything that is checked by hand on a machine with an accelerator and many cores, in one go:
# the test suite on virtual CPU devices, every strategy on the accelerator, and the eager benchmark.
#
#   scripts/on_accelerator.sh [folder for the results]
#
# Uses `python3` as it is (PYTHON=... for another), with JAX for the accelerator, optax, pytest and
# hypothesis installed or on PYTHONPATH.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=${1:-.}
python=${PYTHON:-python3}
export PYTHONPATH="src:.${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
failed=0

echo "== the accelerator"
"$python" scripts/accelerator_check.py || failed=1

echo "== the test suite, on virtual CPU devices"
"$python" -m pytest tests src -q -n 8 -p no:cacheprovider -p no:benchmark \
  --ignore tests/test_docs.py --ignore tests/test_examples.py 2>&1 | tail -n 40
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1

echo "== the eager benchmark, on the CPU cores"
JAX_PLATFORMS=cpu "$python" benchmarks/eager.py --no-tensorflow --json "$results/eager.json" ||
  failed=1

exit "$failed"
