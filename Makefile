# Every target sets itself up: the first call makes an environment, later calls install nothing until pyproject.toml changes.
#
#   make test PYTHON=python3.13    another interpreter, in an environment of its own (.venv-3.13)
#   make test POSTGRES=15          another server for the tests: 18 comes with the tools, others are the system's

PYTHON ?= python3
POSTGRES ?= $(or $(HOLDFAST_POSTGRES),18)
export HOLDFAST_POSTGRES := $(POSTGRES)

ifeq ($(PYTHON),python3)
VENV := .venv
else
# pyenv answers to `python3.13` only where that version was chosen; ask it for the newest one that it has.
INTERPRETER := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2> /dev/null \
	|| PYENV_VERSION=$$(pyenv whence $(PYTHON) 2> /dev/null | sort -V | tail -n 1) pyenv which $(PYTHON) 2> /dev/null)
ifeq ($(INTERPRETER),)
$(error $(PYTHON) cannot be run: install it, or give the path of an interpreter, as in PYTHON=/opt/python3.13/bin/python3)
endif
override PYTHON := $(INTERPRETER)
VENV := .venv-$(shell $(INTERPRETER) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif

# Tests start hundreds of processes; each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers/bin
PEERS_READY := .venv-peers/.ready
PIP := -m pip install -qq --disable-pip-version-check
TESTS := $(BIN)/pytest --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test test-all torture bench bench-quick profile docs mutants dist clean

help: ## list the targets, with the time that they take on 2 cores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { n = split($$2, about, / \| /); \
		printf "make %-12s %-8s %s\n", $$1, (n > 1 ? about[1] : "seconds"), about[n] }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## 1 min | make .venv with the package and the development tools

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Holdfast needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + ": say make PYTHON=python3.13")'
	@echo "Installing holdfast and the development tools into $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) --editable '.[dev]'
	@touch $@

demo: $(READY) ## 15 s | see an order killed, resumed, answered, forked and rolled back
	@$(BIN)/python examples/demo.py

check: $(READY) ## 1 min | lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(READY) ## put the code into the form that `make check` wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Three processes on two cores: these tests wait a third of their time.
test: $(READY) ## 4 min | every behaviour once
	$(TESTS) -n 3

test-all: $(READY) ## 14 min | every test, on every store that it is for, with short runs of injected faults
	HOLDFAST_PROFILE=all $(TESTS) -n 2 -m "not torture"

torture: $(READY) ## hours | the long runs of injected faults, with their counts at the end
	HOLDFAST_PROFILE=torture $(TESTS) -n 2 -m torture -v --timeout 0

$(PEERS_READY): pyproject.toml bench/peers.txt
	@echo "Installing holdfast and what it is measured beside into .venv-peers (once) ..."
	@$(PYTHON) -m venv .venv-peers
	@$(PEERS)/python $(PIP) --editable '.[langgraph,postgres,ui]' -r bench/peers.txt
	@touch $@

bench: $(PEERS_READY) ## 40 min | measure everything, beside other systems; continues where it was interrupted
	@$(PEERS)/python -m bench $(ARGS)

bench-quick: $(PEERS_READY) ## 1 min | measure the most important, and keep nothing
	@$(PEERS)/python -m bench --quick

profile: $(READY) ## where the time of a step goes
	@$(BIN)/python -m bench.profile

docs: $(READY) ## 1 min | make the pages that come from the code, and the pictures
	@$(BIN)/python docs/pictures/terminal.py
	@$(BIN)/python docs/pictures/browser.py
	@$(BIN)/python docs/generate.py

mutants: $(READY) ## 2 hours | break the code on purpose and see that the tests notice
	@$(BIN)/python tests/mutants.py

dist: $(READY) ## 1 min | build wheel and sdist, check them, and try the wheel in an empty environment
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist
	@$(BIN)/python tests/dist.py dist

clean: ## remove the environments, caches and build products
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
