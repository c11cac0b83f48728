# Everything a newcomer needs: python3, make and a C++ compiler.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Another torch than the pinned one, in a new environment: make test TORCH=2.11, TORCH=newest or TORCH=nightly.
TORCH  ?=
PINNED := $(if $(TORCH),,-c constraints.txt)
NIGHTLY := --pre --extra-index-url https://download.pytorch.org/whl/nightly/cpu torch
NAMED  := $(filter-out newest nightly,$(TORCH))
UPGRADE := $(if $(filter newest,$(TORCH)),--upgrade)
WANTED := $(UPGRADE) $(if $(filter nightly,$(TORCH)),$(NIGHTLY),torch$(if $(NAMED),==$(NAMED).*))
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo venv test test-newest test-full check lint format bench fuzz docs wheel sdist release-check clean

help:
	@echo "make demo       transforms as they are and fused, on drawn pictures; writes build/demo.html"
	@echo "make test       all tests that run in minutes (what CI runs)"
	@echo "make test-newest  the same with the newest torch and torchvision, in an environment of its own"
	@echo "make test-full  the long matrices too"
	@echo "make check      what a reviewer runs: format, lint, types, tests"
	@echo "make fuzz       calls drawn at random against eager, for a minute (SECONDS=3600: an hour)"
	@echo "make bench      the quick benchmark, against eager and Inductor; writes bench-results/report.html"
	@echo "make docs       the documentation, in build/docs/index.html"
	@echo "make release-check  everything that must hold before a release: minutes"
	@echo "make wheel      a wheel for this platform with everything built, in dist/ (make sdist: the sources)"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/polyphase/version.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(PINNED) $(WANTED) setuptools
	$(PIP) $(PINNED) --no-build-isolation -e ".[cli,dev]"
	$(PIP) $(PINNED) --no-deps $(UPGRADE) torchvision
	@touch $@

demo: venv
	$(BIN)/polyphase try --output build/demo.html
	@echo "Look at build/demo.html in a browser. Your own: $(BIN)/polyphase try FILE.py:TRANSFORM FOLDER"

test: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not full"

# Installed anew each time, as the newest may be another one by now.
test-newest:
	rm -f .venv-newest/.installed
	$(MAKE) test VENV=.venv-newest TORCH=newest

test-full: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: lint
	$(MAKE) test

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv
	$(BIN)/polyphase bench --quick --out bench-results --report bench-results/report.html

fuzz: SECONDS ?= 60
fuzz: venv
	$(BIN)/python -m tests.hostile.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -c docs . build/docs

$(VENV)/.docs: $(STAMP)
	$(PIP) $(PINNED) --no-build-isolation -e ".[docs]"
	@touch $@

release-check: venv
	$(BIN)/python tools/release_check.py $(ONLY)

# Minutes: hundreds of libraries, and thousands of CUDA kernels. What is in build/ already is not built again.
wheel: venv
	$(BIN)/python -m wheels wheel

sdist: venv
	$(BIN)/python -m wheels sdist

clean:
	rm -rf $(VENV) .venv-newest .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist bench-results src/*.egg-info
