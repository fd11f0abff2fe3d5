# Everything a newcomer needs: Python 3.11 or newer, and make.
#
#   make demo              train on handwritten digits over 4 virtual replicas
#   make demo REPLICAS=8   the same over 8
#   make test              run all tests
#   make bench             run the benchmarks and write benchmarks/RESULTS.md
#
# Each target sets up what it needs in .venv the first time, and again when pyproject.toml changes.

PYTHON ?= python3
VENV ?= .venv
REPLICAS ?= 4
DEMO_ARGS ?=
BENCH ?=
BENCH_ARGS ?=
PYTEST_ARGS ?= -n auto --dist worksteal
MINUTES ?= 1
FUZZ_ARGS ?=
INTEGRATIONS_VENV ?= .venv-integrations
INTEGRATION_TESTS := tests/integrations_extra tests/data/foreign tests/compat/test_config_proto.py

PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install -qq --disable-pip-version-check

.PHONY: help demo test fuzz bench bench-report test-integrations run-test-integrations lint format format-check types docs docs-serve dist setup clean
.NOTPARALLEL:

help:
	@echo "make demo [REPLICAS=n]  train a classifier over n virtual replicas (default 4)"
	@echo "make test               run all tests (PYTEST_ARGS='-k name' to choose)"
	@echo "make fuzz [MINUTES=n]   random programs, run in several ways and compared, for n minutes (default 1)"
	@echo "make test-integrations  tests with torch, TensorFlow, Grain and datasets, in $(INTEGRATIONS_VENV)"
	@echo "make bench              run the benchmarks and write benchmarks/RESULTS.md (BENCH='step eager'"
	@echo "                        to choose, TENSORFLOW_PYTHON=... TORCH_PYTHON=... to have them beside)"
	@echo "make bench-report       write benchmarks/RESULTS.md from what was measured before"
	@echo "make lint               ruff check"
	@echo "make format             rewrite the code as ruff formats it (format-check only looks)"
	@echo "make types              pyright"
	@echo "make docs               build the documentation into site/"
	@echo "make dist               build and check what is uploaded to a package index, in dist/"
	@echo "make setup              set up everything for development"
	@echo "make clean              remove the environments and everything that was built"

demo: $(VENV)/.ready-demo
	@$(PY) examples/digits.py --replicas $(REPLICAS) $(DEMO_ARGS)

test: $(VENV)/.ready-dev $(VENV)/.ready-demo
	$(PY) -m pytest -rfER --rerun-show-tracebacks $(PYTEST_ARGS)

# Other programs each time; FUZZ_ARGS="--law programs --seed 7 --programs 1" for one of them.
fuzz: $(VENV)/.ready-dev
	$(PY) -m tests.fuzz --minutes $(MINUTES) $(FUZZ_ARGS)

# TensorFlow, torch, Grain and Hugging Face's data sets are large: an environment of their own.
test-integrations:
	@$(MAKE) --no-print-directory VENV=$(INTEGRATIONS_VENV) run-test-integrations

run-test-integrations: $(VENV)/.ready-integrations
	$(PY) -m pytest $(INTEGRATION_TESTS) $(PYTEST_ARGS)

# Peers are optional, each an interpreter that has the library; an environment for all three is too large.
BENCH_PEERS = $(if $(TENSORFLOW_PYTHON),--tensorflow-python $(TENSORFLOW_PYTHON)) \
  $(if $(TORCH_PYTHON),--torch-python $(TORCH_PYTHON)) $(if $(GRAIN_PYTHON),--grain-python $(GRAIN_PYTHON))

bench: $(VENV)/.ready-dev
	$(PY) benchmarks run $(BENCH) $(BENCH_PEERS) $(BENCH_ARGS)

bench-report: $(VENV)/.ready-dev
	@$(PY) benchmarks page

lint: $(VENV)/.ready-dev
	$(PY) -m ruff check .

format: $(VENV)/.ready-dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

format-check: $(VENV)/.ready-dev
	$(PY) -m ruff format --check .

types: $(VENV)/.ready-dev $(VENV)/.ready-demo
	$(PY) -m pyright --pythonpath $(PY)

docs: $(VENV)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html"

docs-serve: $(VENV)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve

# A wheel for every machine, and one for this kind of machine with the compiled helper, if there is a compiler.
dist: $(VENV)/.ready-release
	@rm -rf dist build/wheels
	REPLICAX_PURE=1 $(PY) -m build --no-isolation --outdir dist
	$(PY) -m build --no-isolation --wheel --outdir build/wheels
	for wheel in build/wheels/*-linux_*.whl; do \
	  [ ! -e "$$wheel" ] || PATH="$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --wheel-dir dist "$$wheel" || exit 1; \
	done
	$(PY) -m twine check --strict dist/*

# The extras that are not there yet by one call of pip, which then looks once for what fits together.
setup: | $(VENV)/.created
	@missing=; for extra in demo dev docs release; do \
	  [ $(VENV)/.ready-$$extra -nt pyproject.toml ] || missing="$$missing $$extra"; done; \
	[ -z "$$missing" ] || { \
	  list=$$(echo $$missing | tr ' ' ,); \
	  echo "Set-up: installing replicax[$$list] into $(VENV) (once; this can take some minutes)"; \
	  $(PIP_INSTALL) --editable ".[$$list]" && \
	  for extra in $$missing; do touch $(VENV)/.ready-$$extra; done; }

clean:
	rm -rf $(VENV) $(INTEGRATIONS_VENV) site dist build demo_digits.png example_checkpoints .pytest_cache .ruff_cache .hypothesis
	rm -f src/replicax/_src/records/librecords.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "replicax needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another one, for" \
	       "example: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Set-up: creating a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu it is in the package python3-venv."; \
	  exit 1; }
	@touch $@

$(VENV)/.ready-integrations: tests/integrations_extra/requirements.txt pyproject.toml | $(VENV)/.created
	@echo "Set-up: installing replicax[dev], torch, TensorFlow and more into $(VENV) (once; minutes)"
	@$(PIP_INSTALL) --editable ".[dev]" --requirement $<
	@touch $@

# One stamp for each extra: `make demo` does not wait for what only tests need.
$(VENV)/.ready-%: pyproject.toml | $(VENV)/.created
	@echo "Set-up: installing replicax[$*] into $(VENV) (once; this can take a minute or two)"
	@$(PIP_INSTALL) --editable ".[$*]"
	@touch $@
