# Everything a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint bench bench-loader bench-codemod bench-verify bench-interruption clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $(STAMP)

demo: $(STAMP)  ## migrate a copy of the fixture backend, verify it, undo it
	$(BIN)/python benchmarks/demo.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

bench: $(STAMP)  ## the figures of the README
	$(BIN)/python benchmarks/verify_fixture.py
	$(BIN)/python benchmarks/loader.py

bench-loader: $(STAMP)  ## loading alone, beside other libraries where they are installed (pip install -e ".[bench]")
	$(BIN)/python benchmarks/loader.py

bench-codemod: $(STAMP)  ## packages from PyPI migrated and checked, and the migration beside other tools
	$(BIN)/python benchmarks/codemod.py

bench-verify: $(STAMP)  ## how often verify decides rightly
	$(BIN)/python benchmarks/verify_decisions.py --docs

bench-interruption: $(STAMP)  ## runs killed at random instants, and with the disk full
	$(BIN)/python benchmarks/interruption.py --check

clean:
	rm -rf $(VENV) build dist *.egg-info demo
