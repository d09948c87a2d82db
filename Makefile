# Every target sets up what it needs: python3 (3.11 or later) and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests sync what they write, again and again: in memory that takes no time, and a kill leaves the same behind.
MEMORY := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 8000000 2>/dev/null && echo /dev/shm)
test quick: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)
# Dozens of processes import the same modules: where no bytecode may be kept, each one would compile them anew.
test quick: export PYTHONDONTWRITEBYTECODE :=
# Quick tests are small, and there is a process for each core: threads of libraries would wait for one another.
quick: export POLARS_MAX_THREADS := 1
quick: export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test test-engines test-package package quick check format docs bench bench-small clean

demo: $(VENV)/demo.stamp  ## the first five minutes
	$(BIN)/holdfast demo

test: $(VENV)/dev.stamp $(VENV)/browser.stamp  ## everything, as CI runs it
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 20 --ignore tests/package --ignore tests/engines
	@echo 'Left out: make test-package (built, installed by every interpreter, deployed).'
	@echo 'Left out: make test-engines (Spark and Ray on two local workers, an object store).'

test-package: $(VENV)/dev.stamp $(VENV)/root.stamp  ## the package as others get it: built, installed, deployed
	$(BIN)/python -m pytest tests/package

# In an environment of their own: Spark, Ray and moto want other versions of what holdfast is tested with.
test-engines: $(VENV)-engines/stamp  ## decks dealt by Spark and Ray on two local workers; files in an object store
	$(VENV)-engines/bin/python -m pytest -n 0 -W default -p no:cacheprovider tests/engines

package: $(VENV)/dev.stamp  ## dist/: wheel and source archive
	$(BIN)/python -m build

quick: $(VENV)/dev.stamp  ## unit, property and contract tests: within a minute
	HOLDFAST_QUICK=1 $(BIN)/python -m pytest -n 2 --dist worksteal -p no:schemathesis -m "not slow" tests/unit tests/property tests/contract

check: $(VENV)/dev.stamp  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp  ## docs/_build/html
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html

bench: $(VENV)/dev.stamp  ## full-size benchmarks; writes docs/benchmarks.md
	$(BIN)/python benchmarks/report.py

bench-small: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/report.py --small

clean:
	rm -rf $(VENV) $(VENV)-engines build dist docs/_build .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[plot]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)-engines/stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-engines
	$(VENV)-engines/bin/pip install --quiet --disable-pip-version-check --editable '.[objects,ray,spark]' \
	  'moto[s3]' flask flask-cors pytest pytest-xdist pytest-timeout hypothesis
	@if ! command -v java >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq default-jre-headless; fi >/dev/null \
	|| echo "Java could not be installed: the tests of Spark will be skipped."
	touch $@

# Chromium for tests/browser: installed where that may be done; elsewhere those tests are skipped and say why.
$(VENV)/browser.stamp: | $(BIN)/python
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && apt-get install -y -qq chromium chromium-driver && touch $@; } >/dev/null \
	  || echo "Chromium could not be installed: tests/browser will be skipped."; \
	else echo "No Chromium, and it may not be installed here: tests/browser will be skipped."; fi

# debootstrap for tests/package: where no container tool runs, it makes the root in which the image's steps are taken.
$(VENV)/root.stamp: | $(BIN)/python
	@if command -v debootstrap >/dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && apt-get install -y -qq debootstrap && touch $@; } >/dev/null \
	  || echo "debootstrap could not be installed: the image's steps will not be tested."; \
	else echo "No debootstrap, and it may not be installed here: the image's steps will not be tested."; fi

