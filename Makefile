# One word each: setup, demo, test, check, bench, docs, packages, matrix. Everything they need they install.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup system demo test check bench docs packages matrix coverage clean

setup: $(STAMP)  ## virtual environment with the project and its extras (idempotent)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the project and its dependencies into $(VENV): one to two minutes"
	$(BIN)/pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

system:  ## Debian packages that the tests and the demo need (Slurm, MariaDB, Lua, linters)
	./tools/install_system_packages

demo: setup  ## the main job on a real one-machine Slurm, or on the simulated cluster where Slurm can't be had
	./tools/install_system_packages --optional
	$(BIN)/python -m demo $(DEMO)

test: export PYTHONDONTWRITEBYTECODE =  # or every process that a test starts compiles the package anew
test: setup system  ## every test, four at a time (those on a real Slurm mostly wait); nothing is skipped
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST)

check: setup  ## formatting, lint, types, layers, dependencies and their known vulnerabilities, shell and Lua
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry advisor benchmarks
	./tools/check_scripts
	$(BIN)/python tools/audit_dependencies

bench: setup  ## every benchmark, JSON to benchmarks/results/
	$(BIN)/python -m benchmarks

docs: setup  ## the documentation site in build/site; warnings are errors, nothing comes from the network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html, or serve it: $(BIN)/mkdocs serve"

packages: setup  ## .deb, .rpm, wheelhouse and bill of materials in build/packages, tried in a clean Debian root
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt cyclonedx-bom
	./packaging/build
	./packaging/check

matrix:  ## the main scenarios on Slurm 22.05, 24.11 and the newest of Debian, a table and JSON in build/matrix
	./tools/matrix $(MATRIX)

coverage: setup system
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
