# Everything a newcomer needs: python3, make and a C++ compiler.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help venv test test-full check format bench fuzz clean

help:
	@echo "make test       all tests that run in minutes (what CI runs)"
	@echo "make test-full  the long matrices too"
	@echo "make check      what a reviewer runs: format, lint, types, tests"
	@echo "make fuzz       calls drawn at random against eager, for a minute (SECONDS=3600: an hour)"
	@echo "make bench      the quick benchmark, against eager and Inductor; writes bench-results/report.html"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/polyphase/version.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[cli,dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt torchvision
	@touch $@

test: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not full"

test-full: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv
	$(BIN)/polyphase bench --quick --out bench-results --report bench-results/report.html

fuzz: SECONDS ?= 60
fuzz: venv
	$(BIN)/python -m tests.hostile.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist bench-results src/*.egg-info
