# Everything a fresh machine needs: `make demo`, `make test` and `make test-all`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-fast test-slow test-start-methods test-all-start-methods test-no-posix test-all test-frameworks coverage lint qa bench bench-loader bench-small bench-foreign bench-codemod bench-gains bench-verify bench-runs bench-validity bench-slower bench-styles bench-multi-scale bench-hooks bench-tune bench-gpu bench-report docs site bench-doctor bench-scripts bench-foreign-packages package clean

INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ./chirpid_patch

# pip compiles on one processor, and tests of packages too; some modules are of a newer Python, which is no error.
COMPILE := -$(BIN)/python -m compileall -qq -j 2 -x '/tests/|/testing/_internal/' $(VENV)/lib chirp_migrate chirpid_patch

$(STAMP): pyproject.toml chirpid_patch/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable ".[test]"
	$(COMPILE)
	touch $(STAMP)

demo: $(STAMP)  ## migrate a copy of the fixture backend, verify it, undo it
	$(BIN)/python scripts/demo.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --quiet -p no:cacheprovider tests/docs/test_words.py

PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 15

test: $(STAMP)  ## lint, and beside it all tests that are not slow
	$(MAKE) --no-print-directory --jobs 2 lint test-fast

test-fast: $(STAMP)
	$(PYTEST) -m "not slow"

# Only `make test-all` and `make test-slow SLOW=slow` run the exhaustive tests.
SLOW := slow and not exhaustive

test-slow: $(STAMP)  ## the slow tests, one of each kind; many of them wait
	$(PYTEST) --numprocesses 3 -m "$(SLOW)" --ignore tests/frameworks

# Of the tests that start processes, as pytest's cache has them from the runs above. Each process that is spawned imports
# torch again, so that CI repeats the fast tests with few processes by spawn, with more by a fork server (which imports
# torch once), and `make test-all` repeats all tests. CI runs each of these test functions with one set of parameters.
# The scripts that doctor's tests run choose their start methods themselves, and those of verify wait for long.
STARTED := --ignore tests/frameworks --ignore tests/platforms/test_no_posix.py
REPEATED := --one-of-each -m "not slow" $(STARTED) --ignore tests/doctor --ignore tests/verify

test-start-methods: $(STAMP)  ## fast tests that start processes, by the two start methods that are not Linux's default
	$(PYTEST) --start-method forkserver --only-forking 6 $(REPEATED)
	$(PYTEST) --start-method spawn --only-forking 1 $(REPEATED)

test-all-start-methods: $(STAMP)  ## all tests that start processes, by these two: takes long
	$(PYTEST) --start-method forkserver --only-forking 1000 $(STARTED)
	$(PYTEST) --start-method spawn --only-forking 1000 $(STARTED)

test-no-posix: $(STAMP)  ## the fast tests of both packages as on a system without POSIX
	$(PYTEST) -m "not slow" --no-posix tests/source tests/syntax tests/analysis tests/edits tests/additions tests/engine tests/transaction tests/cli tests/rules tests/chirpid_patch

# torchvision 0.16 is the last that can be imported without the operators of its wheel, which need CUDA's libraries; it
# asks for a torch of its time, and is not there for every Python: its test is then skipped.
test-frameworks: $(STAMP)  ## trainings with Lightning, accelerate and others, before and after their migration
	$(INSTALL) --editable ".[test,frameworks]" requests
	-$(BIN)/python -m pip install --quiet --no-compile --no-deps torchvision==0.16.2
	$(PYTEST) --dist load tests/frameworks

coverage: $(STAMP)  ## lines and branches of both packages that the fast tests run
	$(PYTEST) -m "not slow" --cov --cov-report= --cov-report=html:build/coverage --cov-report=json:build/coverage.json
	$(BIN)/python -m coverage report --skip-covered

test-all: lint  ## lint, and all tests, by every start method
	$(PYTEST)
	$(MAKE) --no-print-directory test-all-start-methods

# The checks that need no network. `$(BIN)/python -m qa --help` lists all, and `… -m qa NAME --help` the options of each.
CHECKS := oracle soundness pickling mutations interruption

qa: $(STAMP)  ## correctness checks by name, with random programs: make qa CHECKS="oracle soundness" (hours)
	set -e; for check in $(CHECKS); do $(BIN)/python -m qa $$check; done

bench: $(STAMP)  ## the figures of the README
	$(BIN)/python benchmarks/verify_fixture.py
	$(BIN)/python benchmarks/loader.py

bench-loader: $(STAMP)  ## loading alone, beside other libraries where they are installed (pip install -e ./chirpid_patch -e ".[bench]")
	$(BIN)/python benchmarks/loader.py

bench-small: $(STAMP)  ## epochs with hardly any work, beside PyTorch's loader
	$(BIN)/python benchmarks/small_setups.py --check

bench-listed: $(STAMP)  ## batches of samples in a list, collated in two ways
	$(BIN)/python benchmarks/listed_samples.py

bench-foreign: $(STAMP)  ## our loader beside PyTorch's on datasets of somebody else's code
	$(BIN)/python benchmarks/foreign.py --check --write

bench-foreign-packages: $(STAMP)  ## loaders of packages from PyPI, before and after (quiet machine, 20 minutes)
	$(BIN)/python benchmarks/foreign_packages.py --check --write

bench-codemod: $(STAMP)  ## packages from PyPI migrated and checked, and the migration beside other tools
	$(BIN)/python benchmarks/codemod.py

bench-gains: $(STAMP)  ## what the loaders of packages from PyPI gain
	$(BIN)/python benchmarks/gains.py

bench-verify: $(STAMP)  ## how often verify decides rightly
	$(BIN)/python benchmarks/verify_decisions.py --docs

bench-runs: $(STAMP)  ## ten runs of verify at its defaults on three backends, quiet and busy (three hours)
	$(BIN)/python benchmarks/verify_runs.py

bench-scripts: $(STAMP)  ## training scripts of other people, examined, migrated and verified
	$(BIN)/python benchmarks/verify_scripts.py

bench-validity: $(STAMP)  ## the saving that verify predicts, beside that of long trainings
	$(BIN)/python benchmarks/verify_validity.py --check

bench-slower: $(STAMP)  ## what verify says of a migration that makes one entry point slower
	$(BIN)/python benchmarks/verify_slower.py --docs

bench-styles: $(STAMP)  ## backends in the style of other training code, migrated and verified
	$(BIN)/python benchmarks/verify_styles.py

bench-multi-scale: $(STAMP)  ## training at several scales: memory and time, all scales at once beside on demand
	$(BIN)/python benchmarks/multi_scale.py --check

bench-hooks: $(STAMP)  ## what the profiling hook costs
	$(BIN)/python benchmarks/hooks.py

bench-doctor: $(STAMP)  ## what recording for doctor costs
	$(BIN)/python benchmarks/doctor.py

bench-tune: $(STAMP)  ## what tune picks against the best of an exhaustive sweep
	$(BIN)/python benchmarks/tune.py

bench-gpu: $(STAMP)  ## what keeps a GPU waiting, on a machine with CUDA (under 8 minutes)
	$(BIN)/python benchmarks/gpu.py benchmarks/results/gpu

bench-report: $(STAMP)  ## how soon a report of 2,000 changes is on the screen
	$(BIN)/python benchmarks/report_page.py

docs: $(STAMP)  ## the rule reference and the pictures
	$(BIN)/python docs/make_rules.py
	$(BIN)/python docs/make_schemas.py
	$(BIN)/python docs/make_pictures.py

site: $(STAMP)  ## the documentation as a site, in build/site
	$(INSTALL) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

package: $(STAMP)  ## source archives and wheels in dist/, and the wheels tried in an empty virtual environment
	rm -rf dist build chirpid_patch/build
	$(BIN)/python -m build --outdir dist chirpid_patch
	$(BIN)/python -m build
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	$(BIN)/python tests/package/tutorial.py build/empty/bin/chirp-migrate

clean:
	rm -rf $(VENV) build dist *.egg-info chirpid_patch/build chirpid_patch/*.egg-info demo
