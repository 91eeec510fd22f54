# The front door: `make run` opens the dashboard, `make test` runs the tests. Both set themselves up in .venv and nowhere else.
# `make run ARGS="ls --json"` passes arguments on; `make test TESTS="not soak" ARGS="tests/guest -k jobs"` narrows or widens a run.

# Every `sbx` that a test starts would compile its sources anew, and would not buffer its output as a person's does.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
TESTS  ?= not slow and not soak
JOBS   ?= 3

# A stamp belongs to one folder: a virtual environment holds absolute paths and breaks when its checkout is moved or copied.
HERE      := $(firstword $(shell pwd | cksum))
RUN_STAMP := $(VENV)/.run-$(HERE)
DEV_STAMP := $(VENV)/.dev-$(HERE)

PIP     := PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet -c constraints.txt
PYTEST  := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
CHECKED := -p sbxtui -p sbxguest -p sbxinfra -p tests -p bench -p screenshots

.PHONY: setup run test check lint lint-style lint-format lint-types lint-layers format bench soak screenshots clean
.DEFAULT_GOAL := setup

setup: $(DEV_STAMP)

run: $(RUN_STAMP)
	@exec $(BIN)/sbx $(ARGS)

test: $(DEV_STAMP)
	$(PYTEST) -m "$(TESTS)" $(ARGS)

# Most tests wait for other processes most of the time, so that five of them keep two cores busy.
check: JOBS := 5
check:
	@$(MAKE) --no-print-directory -k -j 2 lint
	@$(MAKE) --no-print-directory test TESTS="$(TESTS) and not long" JOBS=$(JOBS)

# One target per tool, so that `make -k lint` tells everything that is wrong.
lint: lint-style lint-format lint-types lint-layers

lint-style: $(DEV_STAMP)
	$(BIN)/ruff check --output-format concise .

lint-format: $(DEV_STAMP)
	$(BIN)/ruff format --check .

lint-types: $(DEV_STAMP)
	$(BIN)/mypy $(CHECKED)

lint-layers: $(DEV_STAMP)
	@$(BIN)/lint-imports --no-logo

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_STAMP)
	$(BIN)/python -m bench $(ARGS)

soak: $(DEV_STAMP)
	SBX_TEST_SERVERS_FETCH=1 $(PYTEST) -m "slow or soak" --timeout 0 $(ARGS)

screenshots: $(DEV_STAMP)
	$(BIN)/python -m screenshots $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(RUN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { $(call complain, \
	  sbx needs Python 3.11 or newer and `$(PYTHON)` is $$($(PYTHON) --version 2>/dev/null || echo missing), \
	  make $(MAKECMDGOALS) PYTHON=/path/to/python3.11); }
	@echo "installing sbx into $(VENV) …" >&2
	@ls $(VENV)/.run-$(HERE) >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); $(call complain, \
	  no virtual environment could be made with `$(PYTHON)`, on Debian and Ubuntu: apt-get install python3-venv); }
	@$(PIP) -e .
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	@echo "installing what the tests need into $(VENV) …" >&2
	@$(PIP) -e '.[dev,mcp,isal]'
	@touch $@

# $(call complain,WHAT,HINT): the same two lines that sbx itself writes.
complain = printf 'error: %s\n\nhint: %s\n' "$(strip $(subst `,\`,$(1)))" "$(strip $(subst `,\`,$(2)))" >&2; exit 1
