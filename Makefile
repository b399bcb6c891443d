# Every target sets itself up: the first call makes .venv, later calls install nothing until pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test torture bench docs mutants clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the package and the development tools

$(READY): pyproject.toml
	@echo "Installing holdfast and the development tools into .venv (once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## see an order killed, resumed, answered, forked and rolled back
	@$(BIN)/python examples/demo.py

check: $(READY) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: $(READY) ## put the code into the form that `make check` wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(READY) ## all tests but the long ones
	$(BIN)/pytest -n 2 --dist worksteal

torture: $(READY) ## the long runs of injected faults (over an hour), with their counts at the end
	HOLDFAST_PROFILE=torture $(BIN)/pytest -m torture -n 2 --dist worksteal -v --timeout 0

bench: $(READY) ## measure
	@$(BIN)/python -m bench

docs: $(READY) ## make the pages that come from the code, and the pictures
	@$(BIN)/python docs/pictures/terminal.py
	@$(BIN)/python docs/generate.py

mutants: $(READY) ## break the code on purpose and see that the tests notice
	@$(BIN)/python tests/mutants.py

clean: ## remove .venv, caches and build products
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
