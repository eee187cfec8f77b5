# Two commands: `make lab` to learn, `make test` to prove. Windows lines stand in README.md.
# For those who change the course: `make test-quick`, `make test-deep`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make test` installs; with gpu (torch) and cluster (dask) their tests run instead of skipping.
EXTRAS ?= dev,instructor

.PHONY: lab test test-quick test-deep bench pins clean-venv

lab: $(VENV)/.installed
	@$(BIN)/python -m course lab

test: $(VENV)/.installed-dev
	@$(BIN)/python tests/all.py

test-quick: $(VENV)/.installed-dev
	@$(BIN)/python tests/all.py quick

test-deep: $(VENV)/.installed-dev
	@$(BIN)/python tests/all.py deep

bench: $(VENV)/.installed-dev
	@$(BIN)/python tests/all.py bench

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing the course into $(VENV) (about a minute, about 1 GB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# Pins every dependency for every platform; torch is held at the version the course was tried with.
pins:
	echo 'torch==2.13.0' > .torch-pin
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --no-header --no-annotate --quiet --python-version 3.11 \
	  --all-extras --upgrade --constraint .torch-pin pyproject.toml -o constraints.txt
	rm .torch-pin

clean-venv:
	rm -rf $(VENV)
