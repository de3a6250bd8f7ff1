# Every target creates the environment it needs; a stamp file makes that happen once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint bench bench-env docs lock clean

demo: $(READY)
	$(BIN)/userdp demo --output out/demo

test: lint
	$(BIN)/pytest -n 2

test-all: lint
	$(BIN)/pytest -n 2 -m ""

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/userdp bench accuracy

# Environments of the packages that benchmarks compare with; the benchmarks make them too, when first needed.
bench-env: $(READY)
	$(BIN)/python benchmarks/speed_rivals.py

docs: $(READY)
	$(BIN)/pytest docs README.md

# Writes the versions of the current environment, names and versions only.
lock: $(READY)
	$(BIN)/pip freeze --exclude-editable | grep -v -e '@' -e '^-' > requirements.lock

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "userdp needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	$(BIN)/userdp compile
	@touch $(READY)

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache
