# The daily acts. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
RUNTIME_LOCK := requirements-runtime.lock
INSTALLED := $(VENV)/.installed
INSTALLED_RUNTIME := $(VENV)/.installed-runtime
INSTALLED_NATIVE := $(VENV)/.installed-native
OLDEST := .venv-oldest
OLDEST_PYTHONS := python3.10 python3.11 python3.12
OLDEST_TESTS := tests/api tests/columns tests/serdes tests/storage tests/runtime tests/query tests/driver tests/package tests/cli \
    tests/filetopics tests/operators tests/metrics tests/ui tests/lakehouse tests/databases tests/application tests/spark/test_running.py tests/spark/test_conformance.py \
    tests/spark/test_plain_frames.py tests/spark/test_store_source.py
QUICK_TESTS := tests/operators tests/api tests/columns tests/serdes tests/storage tests/runtime tests/query tests/driver tests/package \
    tests/filetopics tests/reference tests/golden
JOBS ?= 3
PYTHONS := python3 python3.13 python3.12 python3.11 python3.10
NEEDED := 3.10 or newer
UV ?= uv
# Tests start hundreds of programs: without compiled modules they take a fifth more processor time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java demo demo-cdc test test-fast test-nightly test-oldest durations check site bench docs release lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: java $(INSTALLED) $(INSTALLED_NATIVE) ## installs the locked dependencies and the package into .venv; checks for Java

# PYTHON=… chooses the interpreter; otherwise the first one that is new enough is taken.
define make_venv
@for python in $(or $(PYTHON),$(PYTHONS)) none; do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && break; \
done; \
if [ "$$python" = none ]; then \
    echo "crossstream needs Python $(NEEDED), found none of: $(or $(PYTHON),$(PYTHONS))." >&2; \
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
endef

# $(1): the lock, and options of pip.
define install
@DIST_EXTRA_CONFIG=$(CURDIR)/tools/build.cfg \
    $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
@touch $@
endef

$(INSTALLED): $(LOCK) pyproject.toml
	$(make_venv)
	@echo "Installing the locked dependencies into $(VENV) (PySpark is large: a minute or two)"
	$(call install,$(LOCK))

# Not compiled: a module is compiled when it is first imported, and the demo imports few of them.
$(INSTALLED_RUNTIME): $(RUNTIME_LOCK) pyproject.toml
	$(make_venv)
	@echo "Installing crossstream and what it needs to run into $(VENV) (PySpark is large: about a minute)"
	$(call install,$(RUNTIME_LOCK) --no-compile)

# Optional (decision 0052): without a C compiler all runs without it.
$(INSTALLED_NATIVE): $(INSTALLED) $(wildcard native/src/* native/crossstream_native/*.py native/*.py native/pyproject.toml)
	@if command -v "$${CC:-cc}" >/dev/null; then \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation ./native; \
	    touch $@; \
	else \
	    echo "There is no C compiler: crossstream runs without its native part, and tests of it are skipped." >&2; \
	fi

java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' || true); \
	if [ "$${version:-0}" -lt 17 ]; then \
	    echo "Spark needs Java 17 or newer; '$$java' is $${version:+version }$${version:-not there}." >&2; \
	    echo "Install a JDK (on Debian and Ubuntu: apt install openjdk-17-jre-headless; on macOS:" >&2; \
	    echo "brew install openjdk@17), or point JAVA_HOME at one you have." >&2; \
	    exit 1; \
	fi

demo-cdc: setup ## from a row in Postgres to the joined result; needs Postgres
	$(BIN)/crossstream demo --postgres

# An environment that has everything has what the demo needs.
demo: java $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(INSTALLED_RUNTIME)) ## a foreign-key join of changing tables, on this machine
	$(BIN)/crossstream demo

# tests/schedule.py decides what runs in one process, and what comes first.
SCHEDULED = --dist loadfile --no-loadscope-reorder
EACH_TIME = -m "not nightly" -n $(JOBS) $(SCHEDULED)
test: setup ## every test but the nightly ones; says which were skipped and why
	@$(BIN)/python -m tests.spark.archive
	$(BIN)/python -m pytest $(EACH_TIME) $(PYTEST_ARGS)

durations: setup ## writes how long each file of tests takes, by which make test starts the longest first
	$(BIN)/python -m pytest $(EACH_TIME) -p tests.durations

test-fast: $(INSTALLED) ## the laws and the quick tests, without a JVM
	$(BIN)/python -m pytest -m "not (nightly or slow or spark or kafka or oracle)" --hypothesis-profile=fast \
	    -n 2 $(SCHEDULED) -q $(QUICK_TESTS) $(PYTEST_ARGS)

# SEED=… repeats a run.
SEED ?= $(shell date +%s)
LEAKS = -W error::pytest.PytestUnraisableExceptionWarning
test-nightly: setup ## thousands of other cases of every law and of Kafka's own driver; prints its seed
	@echo "nightly seed: $(SEED) (make test-nightly SEED=$(SEED) repeats this run)"
	CROSSSTREAM_SEED=$(SEED) $(BIN)/python -m pytest -m nightly -n $(JOBS) $(SCHEDULED) $(LEAKS) $(PYTEST_ARGS)
	CROSSSTREAM_SEED=$(SEED) $(BIN)/python -m pytest --hypothesis-profile=nightly --hypothesis-seed=$(SEED) --timeout 7200 \
	    -m "not (nightly or spark or kafka or oracle)" -n $(JOBS) $(LEAKS) $(PYTEST_ARGS) \
	    $(wildcard tests/operators/*/law) tests/runtime tests/storage tests/serdes tests/columns tests/query tests/reference

# The oldest versions have no wheels for Python 3.13. PYTHON=… chooses the interpreter here too.
test-oldest: java ## unit tests and the main tests on Spark, with the oldest versions pyproject.toml allows
	@$(MAKE) --no-print-directory VENV=$(OLDEST) LOCK=requirements-oldest.lock PYTHON="$(or $(PYTHON),$(OLDEST_PYTHONS))" \
	    NEEDED="3.10, 3.11 or 3.12 with its oldest versions" \
	    $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest $(EACH_TIME) $(OLDEST_TESTS) $(PYTEST_ARGS)

check: $(INSTALLED) site ## style, types, who imports whom, spelling, links; builds the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/codespell
	$(BIN)/python -m pytest -q tests/docs/test_links.py

site: $(INSTALLED) ## builds the documentation with its reference into build/site; a broken link fails
	@$(BIN)/python -m website.stage
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation is in build/site/index.html"

bench: setup ## the benchmarks of the README, each beside its peers
	$(BIN)/crossstream bench

docs: setup ## runs every example of the README and the documentation
	$(BIN)/python -m pytest tests/docs

release: setup ## builds wheel and sdist into dist/, checks, installs and tries them; publishes nothing
	$(BIN)/python -m tools.release

COMPILE = $(UV) pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: ## resolves all locks from pyproject.toml: the newest versions, the oldest, those of the demo (needs uv)
	$(COMPILE) --extra dev --output-file $(LOCK) pyproject.toml
	$(COMPILE) --extra dev --resolution lowest-direct --output-file requirements-oldest.lock pyproject.toml
	echo hatchling | $(COMPILE) --constraint $(LOCK) --output-file $(RUNTIME_LOCK) pyproject.toml -

clean: ## removes what builds, tests and the demo left behind, but not .venv and .venv-oldest
	rm -rf build dist demo-state spark-warehouse .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . \( -path ./$(VENV) -o -path ./$(OLDEST) \) -prune -o -name __pycache__ -type d -exec rm -rf {} +
