# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
# PyTorch to install. docs/learn/install.md says how to get its CPU or CUDA build on other machines.
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo
COMPILED := $(VENV)/.compiled
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Files that are not those of the lock are refused; what fedse itself is built with is among them.
LOCKED := $(PIP) --no-deps --require-hashes
FEDSE := $(PIP) --quiet --no-deps --no-build-isolation -e .

.PHONY: demo test test-all test-gpu torture lint format docs package reference lock licences audit speed-gpu speed-cpu clean

demo: $(DEMO_READY)
	$(BIN)/fedse demo

# One thread for each test process: more threads than cores wait for each other. Four processes on two cores, because tests
# of real processes, hubs and kills wait more than they compute. Hundreds of commands are started as processes of their own,
# and what they import is compiled once, also where Python is told not to keep that.
KEEPING := PYTHONDONTWRITEBYTECODE=
PYTEST := $(KEEPING) OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 4 --dist worksteal

test: $(COMPILED)
	$(PYTEST) -m "not slow and not torture"

test-all: $(COMPILED)
	$(PYTEST) --durations=15 -m "not torture"

# On a machine with a GPU, what only a GPU can show. `make test-all` has these tests too, and skips them elsewhere.
test-gpu: $(COMPILED)
	$(PYTEST) -m "gpu and not torture"

# Proofs that take minutes to hours: damaged inputs by the hundred thousand, kills, real weights.
torture: $(COMPILED)
	PYTHONPATH=tests $(BIN)/python -m torture
	$(PYTEST) -m torture

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in build/site. A link or anchor that leads nowhere is an error.
docs: $(READY)
	$(BIN)/properdocs build --strict --quiet -f mkdocs.yml

# Distributions in dist/, checked as an index does; then the demo, cut short, from the wheel in an empty environment.
PACKAGE := build/package
package:
	rm -rf dist $(PACKAGE)
	$(PYTHON) -m venv $(PACKAGE)/tools
	$(PACKAGE)/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(PACKAGE)/tools/bin/python -m build --outdir dist
	$(PACKAGE)/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv $(PACKAGE)/empty
	$(PACKAGE)/empty/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(PACKAGE)/empty/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[demo]"
	cd $(PACKAGE) && env -u PYTHONPATH empty/bin/fedse demo --set rounds=1 --set exploration.tasks=4 --set evaluation.tasks=4

reference: $(READY)
	$(BIN)/fedse reference > docs/reference.md

# The tables of docs/performance.md, with the usual tools in the same run.
speed-gpu speed-cpu: speed-%: $(READY)
	$(BIN)/python benchmarks/speed.py $*

# Versions and hashes of all that CI and the demo install but PyTorch, whose build depends on the machine.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/python scripts/lock.py $(UPGRADE)

licences: $(READY)
	$(BIN)/python scripts/licences.py > docs/licences.md

# Known vulnerabilities of what is locked. It asks a public database, and says so where it cannot.
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements/ci.txt

# What is locked first: PyTorch then finds there what it needs, and brings along only what its build has of its own.
# Tests import a third of all these modules. Compiling the others takes longer than unpacking them.
$(READY): pyproject.toml requirements/pip.txt requirements/ci.txt
	@echo "Installing fedse with everything that its tests need into $(VENV): this takes minutes and 2 GB."
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(LOCKED) --quiet -r requirements/pip.txt
	$(LOCKED) --no-compile --quiet -r requirements/ci.txt
	$(PIP) --no-compile --quiet $(TORCH)
	$(FEDSE)
	touch $@ $(DEMO_READY)

# Test processes that begin at once would each compile everything. What cannot be imported is for the tests to say.
$(COMPILED): $(READY)
	$(KEEPING) $(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider > $@ || true

# What is installed for the tests has all that a demo needs.
$(DEMO_READY): pyproject.toml requirements/pip.txt requirements/demo.txt
	@echo "Installing fedse with what the demo needs into $(VENV), PyTorch last: this takes minutes and 1.3 GB."
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(LOCKED) --quiet -r requirements/pip.txt
	$(LOCKED) -r requirements/demo.txt
	$(PIP) $(TORCH)
	$(FEDSE)
	touch $@

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
