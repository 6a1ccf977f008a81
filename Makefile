# Everything here works with nothing but Python 3.11+ (its venv and pip) and make.
#
#   make demo      install what is needed and run the example pipeline for real
#   make test      install what is needed and run the tests; no root, no services
#   make check     lint, format, types, layers, links
#   make docs      check the documents and run the examples in them
#   make soak      the long runs (hours)
#   make bench     the benchmarks
#   make servers   install the servers that some tests need (Debian packages, as root)
#   make clean     remove what the other targets made
#
# PYTHON=python3.13 VENV=.venv-3.13 use another interpreter; PYTEST_ARGS="-n 2 tests/unit" go to
# pytest.
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BACKENDS := backends/s3 backends/redis
# pip is quiet about what it did, not about what went wrong.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check docs soak bench servers clean
.DELETE_ON_ERROR:

# The pip that Python 3.11 and 3.12 bring knows no dependency groups, so the pinned one comes first.
$(STAMP): pyproject.toml constraints.txt $(BACKENDS:=/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tapstore needs Python 3.11 or newer, not " + sys.version.split()[0] + ": try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools
	@# setuptools warns of every editable install that folders may shadow it; this one is meant to.
	PYTHONWARNINGS="ignore:Editable installation" $(PIP) --no-build-isolation --group dev $(foreach each,. $(BACKENDS),--editable $(each))
	@touch $@

demo: $(STAMP)
	$(BIN)/tapstore demo

test: $(STAMP)
	$(BIN)/pytest $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --quiet tests/docs/test_links.py

docs: $(STAMP)
	$(BIN)/pytest tests/docs

soak: $(STAMP)
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m soak --timeout=7200 $(PYTEST_ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks

servers:
	@tests/servers/install.sh

clean:
	rm -rf $(VENV) build dist *.egg-info backends/*/build backends/*/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache benchmarks/results
	find tapstore tests benchmarks backends -name __pycache__ -type d -prune -exec rm -rf {} +
