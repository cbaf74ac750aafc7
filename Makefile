# One command per task; `make` alone lists them. Each target first updates .venv with what it needs
# (requirements/install.py). Python 3.11 and make must be installed. If nothing has changed, the update takes 0.1 s.

PYTHON ?= $(or $(wildcard .venv/bin/python),python3)
INSTALL = $(PYTHON) requirements/install.py
BIN = .venv/bin
LAYERS = $(BIN)/python -m layers.vendor.build
INTERPRETERS = $(BIN)/python -m tests.processes.interpreters
LAMBDA_TESTS = $(BIN)/python -m tests.processes.lambdapython

# Nothing here needs an AWS account, so no target sees its credentials.
unexport AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
# Many processes import many modules; compiling them again each time costs minutes. `make clean` deletes the cache.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-exhaustive test-lambda test-browser e2e check check-types check-rules bench synth docs pictures format pins clean

help: ## list all targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## install everything that the targets below need; they then work offline
	@$(INSTALL) run dev infra docs browser
	@$(LAYERS) again
	@$(INTERPRETERS)
	@$(LAMBDA_TESTS)

demo: ## watch 20 pending pods get the cheapest nodes that fit, on this machine
	@$(INSTALL) run
	@$(BIN)/nodesmith demo

# Groups that take long come first, and thousands of short tests fill the end.
test: ## run unit, property, contract, integration and infra tests
	@$(INSTALL) run dev infra
	@$(LAYERS)
	@$(INTERPRETERS)
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder tests/infra tests/integration tests/property tests/contract tests/unit

test-exhaustive: ## run the tests that `make test` runs on a sample, on everything
	@$(INSTALL) run dev infra
	@$(LAYERS)
	@$(INTERPRETERS)
	NODESMITH_EXHAUSTIVE=1 $(BIN)/pytest -n 2 --dist loadgroup -m "exhaustive or hypothesis" tests/unit tests/property tests/integration

test-lambda: ## run unit and property tests on Lambda's Python version; SUITES="tests/contract tests/integration" for others
	@$(INSTALL) run dev
	@$(LAYERS)
	@$(LAMBDA_TESTS) $(or $(SUITES),tests/unit tests/property)

test-browser: ## test the page of `nodesmith ui` in Chromium, which must be installed or be named by CHROMIUM
	@$(INSTALL) run dev browser
	$(BIN)/pytest tests/browser

e2e: ## run tests on a real control plane, built on first use in about 5 minutes (needs Go, or KUBEBUILDER_ASSETS); QUICK=1 omits the slow ones
	@$(INSTALL) run dev infra
	@$(LAYERS)
	@$(BIN)/python -m nodesmith_local.controlplane
	@$(if $(QUICK),,$(BIN)/python -m tests.e2e.kueue)
	$(BIN)/pytest -n 4 --dist loadgroup --no-loadscope-reorder --api-server real $(if $(QUICK),-m "not slow") tests/e2e tests/contract

check: ## run ruff, mypy --strict, the import rules and the house rules
	@$(INSTALL) run dev infra
	@$(MAKE) --no-print-directory -j2 check-types check-rules

check-types: # mypy uses one processor and takes longer than all else
	$(BIN)/mypy

check-rules:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit/repository/test_house_rules.py tests/unit/docs/test_prose.py

bench: ## compare measurements with the goals; writes build/benchmarks.json
	@$(INSTALL) run dev browser
	$(BIN)/python -m tests.benchmarks

synth: ## write the CloudFormation templates to cdk.out; needs no account
	@$(INSTALL) run infra
	@$(LAYERS)
	$(BIN)/python app.py

docs: ## build the documentation site into build/site; a broken link fails
	@$(INSTALL) docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: ## make the documentation's pictures again, from real runs of 6 minutes; needs Chromium
	@$(INSTALL) run dev browser
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m tests.pages.pictures

format: ## format the code with ruff
	@$(INSTALL) dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

pins: ## compile requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	@$(PYTHON) -m requirements.compile $(UPGRADE)

clean: ## remove everything that the targets have made
	rm -rf .venv build dist cdk.out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
