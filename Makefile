# Two commands: `make lab` to learn, `make test` to prove. Windows lines stand in README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make test` installs; with gpu (torch) and cluster (dask) their tests run instead of skipping.
EXTRAS ?= dev,instructor

.PHONY: lab test pins clean-venv

lab: $(VENV)/.installed
	@$(BIN)/python -m course lab

test: $(VENV)/.installed-dev
	@$(BIN)/python tests/all.py

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
