# Every target sets itself up: the first call makes .venv, later calls install nothing until pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv-peers/bin
PEERS_READY := .venv-peers/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test torture bench bench-quick profile docs mutants clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

$(PEERS_READY): pyproject.toml bench/peers.txt
	@echo "Installing holdfast and what it is measured beside into .venv-peers (once) ..."
	@$(PYTHON) -m venv .venv-peers
	@$(PEERS)/python -m pip install -qq --disable-pip-version-check --editable '.[langgraph,postgres,ui]' -r bench/peers.txt
	@touch $@

bench: $(PEERS_READY) ## measure everything, beside other systems (under 40 minutes; goes on where it was interrupted)
	@$(PEERS)/python -m bench $(ARGS)

bench-quick: $(PEERS_READY) ## measure the most important in under a minute, and keep nothing
	@$(PEERS)/python -m bench --quick

profile: $(READY) ## where the time of a step goes
	@$(BIN)/python -m bench.profile

docs: $(READY) ## make the pages that come from the code, and the pictures
	@$(BIN)/python docs/pictures/terminal.py
	@$(BIN)/python docs/pictures/browser.py
	@$(BIN)/python docs/generate.py

mutants: $(READY) ## break the code on purpose and see that the tests notice
	@$(BIN)/python tests/mutants.py

clean: ## remove .venv, .venv-peers, caches and build products
	rm -rf .venv .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
