#!/usr/bin/env bash
# Everything that is checked by hand on a machine with an accelerator and many cores, in one go:
# every strategy on the accelerator, the test suite on virtual CPU devices, a large compiled step on
# the accelerator, and the benchmarks on the CPU cores.
#
#   scripts/on_accelerator.sh [folder for the results]
#
# Uses `python3` as it is (PYTHON=... for another), with JAX for the accelerator, optax, pytest and
# hypothesis installed or on PYTHONPATH. PARTS="accelerator suite gpu step eager input" chooses.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=${1:-.}
python=${PYTHON:-python3}
parts=" ${PARTS:-accelerator suite gpu step eager input} "
export PYTHONPATH="src:.${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
failed=0

wanted() { [[ "$parts" == *" $1 "* ]]; }

"$python" src/replicax/_src/records/_build.py || echo "(without the compiled helper for records)"
if wanted accelerator; then
  echo "== the accelerator"
  "$python" scripts/accelerator_check.py || failed=1
fi
if wanted suite; then
  echo "== the test suite, on virtual CPU devices"
  "$python" -m pytest tests src -q -n "${WORKERS:-8}" -p no:cacheprovider -p no:benchmark \
    --ignore tests/test_docs.py --ignore tests/test_examples.py 2>&1 | tail -n 40
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
fi
if wanted gpu; then
  echo "== a large compiled step, on the accelerator"
  "$python" benchmarks step_gpu --json "$results/gpu.json" || failed=1
fi
if wanted step; then
  echo "== compiled steps, on the CPU cores"
  JAX_PLATFORMS=cpu "$python" benchmarks step --no-tensorflow --json "$results/step.json" ||
    failed=1
fi
if wanted eager; then
  echo "== eager steps, on the CPU cores"
  JAX_PLATFORMS=cpu "$python" benchmarks eager --no-tensorflow --json "$results/eager.json" ||
    failed=1
fi
if wanted input; then
  echo "== input, on the CPU cores"
  JAX_PLATFORMS=cpu "$python" benchmarks input --no-peers --json "$results/input.json" ||
    failed=1
fi
exit "$failed"
