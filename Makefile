# `make demo` shows what hotlap does, `make test` runs every check, `make check` those of a minute. All work in .venv,
# which they make, and install again only when pyproject.toml or constraints.txt has changed. Another interpreter:
# make test PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# The releases that every check was last seen to pass with; `make newest` moves on. Users are bound by pyproject.toml.
KNOWN := constraints.txt

.PHONY: demo test check lint types chromium clock newest clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: .venv/.for-demo
	$(BIN)/hotlap demo

# Tests that judge times which they measure are marked `alone` and have the machine to themselves; the others share it.
# One of those that fails beside others is run once more without them, and fails there if it is not the machine.
test: lint types chromium clock
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not alone" || \
	    $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m "not alone"
	$(BIN)/python -m pytest -m alone

# While you work: no test that starts a process, computes with torch or measures (tests/conftest.py picks them).
check: lint types
	$(BIN)/python -m pytest -m facts

lint: .venv/.for-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/shape.py

types: .venv/.for-test
	$(BIN)/mypy

# The HTML report is tested in a real browser. Without one, those tests say that they are skipped.
chromium:
	@command -v chromium >/dev/null || \
	if grep -qs '^ID=debian' /etc/os-release && [ "$$(id -u)" = 0 ]; then \
	    echo "installing chromium for the tests of the HTML report"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get -qq update && apt-get -qq -y install --no-install-recommends chromium; } >/dev/null 2>&1 \
	    || echo "chromium could not be installed: the tests that need a browser will be skipped"; \
	else \
	    echo "chromium is not here: the tests that need a browser will be skipped"; \
	fi

# A device with a known clock, built once with the compiler that torch.compile needs anyway.
clock: .venv/.for-test
	$(BIN)/python tests/clock_device/build.py

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.for-demo: pyproject.toml $(KNOWN) | $(BIN)/python
	$(PIP) -c $(KNOWN) -e '.[recipes]'
	@touch $@

# What the tests need includes what the demo needs.
.venv/.for-test: pyproject.toml $(KNOWN) | $(BIN)/python
	$(PIP) -c $(KNOWN) -e '.[test]'
	@touch .venv/.for-demo $@

# In a .venv that is made anew, so that nothing else is written down; which build of torch it is belongs to the host.
newest:
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[test]'
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' > $(KNOWN)
	@touch .venv/.for-demo .venv/.for-test

clean:
	rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
