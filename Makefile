# Every target works on a fresh clone that has only python3 (>= 3.11) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One thread; and what pytest makes of the tests is kept, which halves the time to collect them.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.installed-docs

.PHONY: setup demo test test-fast check format docs notebooks picture dist wheel-test bench bench-peers mutate reproduce clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt -e '.[dev,sepsis,persist,clinical,report,rl,dask]'
	touch $@

demo: setup   ## the main job, on data that comes with the package
	$(BIN)/caliope demo --fail-on never

test: setup   ## every test, the doctests and the README
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal  # two workers, one thread each

test-fast: setup   ## the quick tests
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" tests

check: setup   ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)   ## the site, with every page and example executed; a warning is an error. Open docs/_build/html/index.html
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html  # -j would hide errors of writing

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt -e '.[docs]'
	touch $@

notebooks: setup   ## the notebooks, run from the first cell to the last
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt -e '.[notebooks]'
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_notebooks.py

picture: $(DOCS)   ## the picture of the README, from the demo's page; needs Chromium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/picture.py

dist: setup   ## the wheel and the sdist, in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

wheel-test: dist   ## the wheel in an empty environment outside the tree: import, types, a small demo
	.ci/wheel dist/*.whl

reproduce: setup   ## the paper's figures and tables; resumes after a kill, results in reproduction-results/
	$(BIN)/python -m reproduction all

bench: setup   ## timings as ratios, measured in one run
	$(BIN)/python -m benchmarks.estimators
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.values
	$(BIN)/python -m benchmarks.neighbours
	$(BIN)/python -m benchmarks.behaviour
	$(BIN)/python -m benchmarks.calibration

bench-peers:   ## the same data through SCOPE-RL, in an environment of its own
	$(PYTHON) -m benchmarks.peers

mutate: setup   ## small changes of the package that the tests must notice; resumes after a kill, results in mutation-results/
	$(BIN)/python -m benchmarks.mutate

clean:
	rm -rf $(VENV) dist docs/_build docs/_figures docs/api docs/gallery .venv-peers bench-data .pytest_cache .mypy_cache .ruff_cache .hypothesis mutation-results
