# The daily acts. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHONS := python3 python3.13 python3.12 python3.11 python3.10
UV ?= uv

.PHONY: help setup java demo test check bench docs lock clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(INSTALLED) java ## installs the locked dependencies and the package into .venv; checks for Java

# PYTHON=… chooses the interpreter; otherwise the first one that is new enough is taken.
$(INSTALLED): requirements.lock pyproject.toml
	@for python in $(or $(PYTHON),$(PYTHONS)) none; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && break; \
	done; \
	if [ "$$python" = none ]; then \
	    echo "crossstream needs Python 3.10 or newer, found none of: $(or $(PYTHON),$(PYTHONS))." >&2; \
	    echo "Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    rm -rf $(VENV); \
	    "$$python" -m venv $(VENV) || { \
	        echo "$$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; \
	        exit 1; \
	    }; \
	fi
	@echo "Installing the locked dependencies into $(VENV) (PySpark is large: a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' || true); \
	if [ "$${version:-0}" -lt 17 ]; then \
	    echo "Spark needs Java 17 or newer; '$$java' is $${version:+version }$${version:-not there}." >&2; \
	    echo "Install a JDK (on Debian and Ubuntu: apt install openjdk-17-jre-headless; on macOS:" >&2; \
	    echo "brew install openjdk@17), or point JAVA_HOME at one you have." >&2; \
	    exit 1; \
	fi

demo: setup ## a foreign-key join of changing tables, on this machine
	$(BIN)/crossstream demo

test: setup ## every test but the nightly ones; says which were skipped and why
	$(BIN)/python -m pytest -m "not nightly" $(PYTEST_ARGS)

check: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## the benchmarks of the README, each beside its peers
	$(BIN)/crossstream bench

docs: setup ## runs every example of the README and the documentation
	$(BIN)/python -m pytest tests/docs

lock: ## resolves requirements.lock anew from pyproject.toml (needs uv)
	$(UV) pip compile --quiet --upgrade --universal --python-version 3.10 --extra dev --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    --output-file requirements.lock pyproject.toml

clean: ## removes what builds, tests and the demo left behind, but not .venv
	rm -rf build dist demo-state spark-warehouse .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
