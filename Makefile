# `make app` and `make test` do everything on a fresh machine; `make env` only makes the environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL = $(PIP) install --quiet \
  -c constraints/python-$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
FRONT := relascope/__init__.py relascope/__main__.py relascope/py.typed
ROOMS := $(patsubst %/__init__.py,%,$(filter-out relascope/%,$(wildcard */__init__.py)))

.PHONY: app env constraints test test-page test-relay test-relax quick exhaustive coverage lint lint-style lint-types gallery \
  docs pictures chromium clean

app: env
	$(BIN)/relascope

env: $(VENV)/.env

# In the environment `relascope` is a folder of links to the folders here, so that it is one package
# there as it is where the wheel is installed.
$(VENV)/.env: requirements.txt constraints/*.txt engine/relay/tvm/find.py Makefile
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 10) <= sys.version_info[:2] <= (3, 12) else \
	  "relascope needs Python 3.10, 3.11 or 3.12; this is %d.%d. Name another: make PYTHON=python3.11" \
	  % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements.txt
	mkdir -p $(VENV)/src/relascope
	for part in $(FRONT) $(ROOMS); do ln -sfn ../../../$$part $(VENV)/src/relascope/; done
	for site in $(VENV)/lib/python*/site-packages; do echo ../../../src > $$site/relascope.pth; done
	printf '%s\n' '#!/bin/sh' 'exec "$$(dirname "$$(readlink -f "$$0")")/python" -m relascope "$$@"' \
	  > $(BIN)/relascope
	chmod +x $(BIN)/relascope
	test "$$(uname -sm)" != "Linux x86_64" || test -n "$$RELASCOPE_RELAY_TVM" || \
	  $(BIN)/relascope install-relay
	touch $@

$(VENV)/.test: $(VENV)/.env requirements-test.txt requirements-onnxruntime.txt
	$(INSTALL) -r requirements-test.txt
	touch $@

# Every version of what requirements*.txt bring along, for each Python.
constraints:
	$(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet uv
	for v in 3.10 3.11 3.12; do $(VENV)/uv/bin/uv pip compile --quiet --no-header --no-annotate \
	  --python-version $$v --python-platform x86_64-manylinux_2_28 requirements-test.txt \
	  --output-file constraints/python-$$v.txt || exit; done

# Everything: lint, then three groups of tests in turn, each on WORKERS processes; what fails does not
# keep the others from running. One process cannot hold two TVMs, so the tests that run inside one
# are groups of their own. ARGS go to pytest: `make test ARGS=--durations=25`.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.test
	@$(MAKE) --no-print-directory -k lint test-page test-relay test-relax

# `make test PROCESSOR=avx2` leaves AVX-512 unused, as on a smaller processor: by PyTorch and its
# libraries, by numpy, by OpenBLAS, and in the code that engines have TVM write.
ifeq ($(PROCESSOR),avx2)
export ATEN_CPU_CAPABILITY := avx2
export ONEDNN_MAX_CPU_ISA := AVX2
export MKL_ENABLE_INSTRUCTIONS := AVX2
export OPENBLAS_CORETYPE := Haswell
export NPY_DISABLE_CPU_FEATURES := X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX
export RELASCOPE_PROCESSOR := avx2
else ifneq ($(PROCESSOR),)
$(error PROCESSOR is avx2 or nothing)
endif

test-page: $(VENV)/.test chromium
	$(PYTEST) --ignore=tests/relay --ignore=tests/relax $(ARGS)

test-relay test-relax: test-%: $(VENV)/.test
	$(PYTEST) tests/$* $(ARGS)

# What needs neither torch, nor a TVM, nor the page, nor an environment of its own. A file that imports
# torch is left out whole: the import alone takes as long as a hundred of these tests.
quick: $(VENV)/.test
	$(PYTEST) -m "not exhaustive and not engine and not browser" \
	  $(addprefix --ignore=tests/,relay relax compilers browser packaging page) \
	  $(addprefix --ignore=,$(shell grep -lE '^(import|from) (torch|transformers|onnx|hostile|relascope.*program_file)' tests/*/test_*.py)) \
	  $(ARGS)

# What `make test` leaves out for time, too.
exhaustive: $(VENV)/.test
	@began=$$(date +%s); $(MAKE) --no-print-directory test ARGS='-m "" $(ARGS)'; failed=$$?; \
	  echo "make exhaustive took $$(( $$(date +%s) - began )) s"; exit $$failed

# How many of the lines outside tests they run.
COUNTED = $(or $(wildcard /dev/shm),$(CURDIR)/out)/relascope-coverage
coverage: export COVERAGE_FILE = $(COUNTED)/data
coverage: export COVERAGE_RCFILE = $(CURDIR)/pyproject.toml
coverage: export PYTHONPATH = $(CURDIR)/tests/support/counting
coverage: $(VENV)/.test
	rm -rf $(COUNTED) && mkdir -p $(COUNTED)
	-$(MAKE) --no-print-directory test \
	  PYTEST='$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal'
	$(BIN)/python tests/support/counting/saved_before_kill.py $(COUNTED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --ignore-errors --omit='tests/*' | tail -1

lint: $(VENV)/.test
	@$(MAKE) --no-print-directory -j2 -k --output-sync=target lint-style lint-types

lint-style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd $(VENV)/src && ../bin/lint-imports --config ../../.importlinter

lint-types: $(VENV)/.test
	$(BIN)/mypy

# What the docs show of passes and options is what engines and parser print.
docs: $(VENV)/.env
	$(BIN)/python docs/gallery/examples.py

# Pages to look at without relascope, with a picture of each, in out/gallery.
gallery: $(VENV)/.test chromium
	$(BIN)/python docs/gallery/gallery.py

# Every picture of README and docs, from the page as it is; best on a quiet machine, for one has times.
pictures: $(VENV)/.test chromium
	$(BIN)/python docs/images/pictures.py

# The browser tests drive Chromium; Debian and Ubuntu package it.
chromium:
	@command -v chromium >/dev/null || { \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  command -v apt-get >/dev/null || { echo "Install Chromium for the browser tests." >&2; exit 1; }; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq chromium >/dev/null; }

clean:
	rm -rf $(VENV) out
