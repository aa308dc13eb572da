# A few lines each that call real tools. PYTHON=... picks the Python; 3.11 or 3.12.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
BARE = "$(or $(PYTHON),python3)" -m
BIN = .venv/bin
# Options of `make prove-azure`: docs/prove-azure.md.
PROVE ?=
# Options of `make bench`, as `--page training --rounds 3` (CONTRIBUTING.md); else every page.
BENCH ?=
# Whose mutants `make mutants` plants, by the beginnings of modules (jobs/rank infra); else all.
MUTANTS ?=

# A Python for `make gpu` with the pytorch image's packages and timm; else one is made of that image's runtime.
GPU_PYTHON ?=

# What `make check` asks, side by side; the first takes as long as all others.
CHECKS = $(addprefix check-,types format lint imports links architecture)

.PHONY: setup setup-v1 demo test check docs bench faults images mutants policy prove-azure gpu
.PHONY: $(CHECKS)

setup:
	@$(BARE) tools.setup

# What the engine azureml_v1 asks: azureml-core, in an environment of its own.
setup-v1: setup
	$(BIN)/python -P -m jobs.engines.azure_ml_v1.sdk

demo:
	@$(BARE) tools.demo

test: setup
	@$(BARE) tests.environments.testbed
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=15

check:
	@$(BARE) tools.setup environment
	@$(MAKE) --no-print-directory -j -k $(CHECKS)

check-format:
	$(BIN)/ruff format --check
check-lint:
	$(BIN)/ruff check
check-types:
	$(BIN)/pyright --threads 2
check-imports:
	$(BIN)/lint-imports
check-links:
	$(BIN)/python -m tests.documents.links
check-architecture:
	$(BIN)/python -m tests.documents.architecture --check

docs:
	@$(BARE) tools.setup environment
	$(BIN)/python -m tests.documents.site

bench: setup
	@$(BARE) tests.environments.testbed
	$(BIN)/python -m tests.bench $(BENCH)

faults: setup
	@$(BARE) tests.environments.testbed
	$(BIN)/python -m tests.documents.fault_counts

images: setup
	@$(BARE) tests.environments.testbed
	TRAINYARD_CI=1 $(BIN)/pytest -v -m images tests/images/test_builds.py

mutants:
	@$(BARE) tools.setup environment
	$(BIN)/python -P -m tests.mutants $(MUTANTS)

policy: setup
	$(BIN)/python -P -m tests.environments.policy

prove-azure: setup
	@$(BIN)/python -P -m tools.prove_azure $(PROVE)

gpu: $(if $(GPU_PYTHON),,setup)
	@python="$(or $(GPU_PYTHON),$$($(BIN)/python -P -m tests.gpu.python))" && "$$python" -m tests.gpu
