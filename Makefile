# One command per task; `make` alone lists them. Each target first brings .venv up to what it needs (requirements/install.py:
# Python 3.11 and make are all that has to be there), which costs a tenth of a second when nothing has changed.

PYTHON ?= $(or $(wildcard .venv/bin/python),python3)
INSTALL = $(PYTHON) requirements/install.py
BIN = .venv/bin
LAYERS = $(BIN)/python -m layers.vendor.build
INTERPRETERS = $(BIN)/python -m tests.interpreters
LAMBDA_TESTS = $(BIN)/python -m tests.lambdapython

# Nothing here needs an AWS account, so none is seen.
unexport AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
# Many processes import much: what each would compile again costs minutes. `make clean` removes what is kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-lambda e2e check bench synth format pins clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## install everything that the targets below need; after it, no network is used
	@$(INSTALL) run dev infra
	@$(LAYERS) again
	@$(INTERPRETERS)
	@$(LAMBDA_TESTS)

demo: ## watch 20 pending pods get the cheapest nodes that hold them, on this machine
	@$(INSTALL) run
	@$(BIN)/nodesmith demo

test: ## unit, property, contract, integration and infra tests
	@$(INSTALL) run dev infra
	@$(LAYERS)
	@$(INTERPRETERS)
	$(BIN)/pytest -n 2 --dist loadgroup tests/unit tests/property tests/contract tests/integration tests/infra

test-lambda: ## unit and property tests on the Python that Lambda runs; SUITES="tests/contract tests/integration" for others
	@$(INSTALL) run dev
	@$(LAYERS)
	@$(LAMBDA_TESTS) $(or $(SUITES),tests/unit tests/property)

e2e: ## prove it on a real control plane; builds that first, about 5 minutes once (needs Go, or KUBEBUILDER_ASSETS); QUICK=1 for half of it
	@$(INSTALL) run dev infra
	@$(LAYERS)
	@$(BIN)/python -m nodesmith_cli.local.controlplane
	$(BIN)/pytest -n 4 --dist loadgroup --no-loadscope-reorder --api-server real $(if $(QUICK),-m "not slow") tests/e2e tests/contract

check: ## ruff, mypy --strict, the import rules and the house rules
	@$(INSTALL) run dev infra
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit/test_house_rules.py

bench: ## measure against the goals; writes build/benchmarks.json
	@$(INSTALL) run dev
	$(BIN)/python -m tests.benchmarks

synth: ## write the CloudFormation templates to cdk.out, no account needed
	@$(INSTALL) run infra
	@$(LAYERS)
	$(BIN)/python app.py

format: ## let ruff put the code in form
	@$(INSTALL) dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

pins: ## compile requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	@$(PYTHON) -m requirements.compile $(UPGRADE)

clean: ## remove everything that these targets made
	rm -rf .venv build dist cdk.out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
