# `make test` and `make demo` need only Python >= 3.11 with its venv module; they make .venv themselves.
# PYTHON chooses the interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq
# Processes that run tests side by side.
WORKERS ?= auto
# What runs the tests; make coverage puts itself here.
PYTEST ?= -m pytest
# Lines that the tests must run, in percent of each room.
MIN_COVERAGE ?= 90

.PHONY: help test coverage soak model demo bench bench-check lint format types check clean

help:
	@echo "make test    run the tests (sets up $(VENV) first)"
	@echo "make coverage   the same, and what they have not run; slow"
	@echo "make soak    a thousand lives that end by SIGKILL (minutes)"
	@echo "make model   random workflows against a model, for as long as you like"
	@echo "make demo    show a workflow that survives kill -9"
	@echo "make bench   measure this machine; make bench-check compares the ratios with the recorded ones"
	@echo "make lint    ruff and the layers of rooms; make format repairs what it can"
	@echo "make types   mypy and pyright, strict, on an installed copy"
	@echo "make check   everything that CI runs"

# ARGS go to pytest: make test ARGS="tests/journal -k append"
test: $(VENV)/.test
	$(BIN)/python $(PYTEST) -q -n $(WORKERS) --dist loadfile $(ARGS)

# Not a part of CI: the tracer makes the tests several times slower.
coverage: $(VENV)/.test
	rm -f .coverage .coverage.*
	$(MAKE) test PYTEST="-m coverage run -m pytest"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o .coverage.json
	$(BIN)/python .ci/coverage_by_room.py .coverage.json $(MIN_COVERAGE) journal supervision actors

# ARGS="--kills 5000 --seed 7"
soak: $(VENV)/.test
	PYTHONPATH=.:tests $(BIN)/python -m support.sigkill_rounds $(ARGS)

# ARGS="--examples 100000 --seed 7"
model: $(VENV)/.test
	PYTHONPATH=.:tests $(BIN)/python -m support.workflow_rounds $(ARGS)

demo: $(VENV)/.base
	$(BIN)/everact demo $(ARGS)

bench: $(VENV)/.base
	$(BIN)/everact bench $(ARGS)

bench-check: $(VENV)/.base
	$(BIN)/everact bench --repeat 3 --check bench/recorded.json $(ARGS)

lint:
	bash .ci/run lint layers

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types:
	bash .ci/run types

check:
	bash .ci/run

clean:
	rm -rf $(VENV) .typecheck build dist .coverage .coverage.* everact.egg-info

# One stamp for each set of dependencies; all are editable, so that the tests always see the checkout.
# Another PYTHON, or a checkout that was moved: make clean first.
$(VENV)/.base: $(VENV)/.made pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml
	$(PIP) -e ".[test]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Everact needs Python 3.11 or newer, and '$(PYTHON)' is not one." >&2; \
		echo "Name one that is: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) (once)"
	$(PIP) --upgrade pip
	@touch $@
