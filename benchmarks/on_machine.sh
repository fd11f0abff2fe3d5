#!/usr/bin/env bash
# The benchmarks on a machine that is lent for minutes: what makes sense there, without other libraries.
#
#   bash benchmarks/on_machine.sh <folder for the results> [cpu|gpu]
#
# cpu (the default): on the cores; gpu: a large compiled step and Keras on one GPU. What is done within LIMIT
# seconds (540) is stored as <folder>/<machine>/<run>.json: copy it into benchmarks/results/ and run
# `make bench-report`. BENCH="step eager" chooses runs, so that several calls can share the work:
# what was cut off is named at the end. ROUNDS=n sets the turns that each side takes (11).
#
# Uses `python3` as it is (PYTHON=... for another), with JAX and optax installed or on PYTHONPATH, and
# Keras for keras_fit.
set -uo pipefail
if [ $# -lt 1 ]; then
  echo "usage: bash benchmarks/on_machine.sh <folder for the results> [cpu|gpu]" >&2
  exit 2
fi
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
kind=${2:-cpu}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
case $kind in
  # The quicker ones first. Virtual devices need no accelerator: the runs hide it from JAX.
  cpu) runs=${BENCH:-"all_reduce multi_worker step eager input keras_fit sharded"} ;;
  gpu) runs=${BENCH:-"step_gpu keras_fit_gpu"} ;;
  *) echo "the second argument is cpu or gpu, and not '$kind'" >&2; exit 2 ;;
esac
"$python" src/replicax/_src/records/_build.py || echo "(without the compiled helper for records)"
# shellcheck disable=SC2086  # words
exec "$python" benchmarks run $runs --no-peers --results "$out" \
  --limit "${LIMIT:-540}" --rounds "${ROUNDS:-11}" ${ARGS:-}
