# Two commands: `make lab` to learn, `make test` to prove. Windows lines stand in README.md.
# For those who change the course: `make test-quick`, `make test-deep`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make test` installs; with gpu (torch) and cluster (dask) their tests run instead of skipping.
EXTRAS ?= dev,instructor
export EXTRAS
# What `make lab` gives JupyterLab: make lab ARGS="--port 8890 --ip 0.0.0.0 --no-browser --allow-root"
ARGS ?=

.PHONY: lab test test-quick test-deep bench pins clean-venv

# `exec`, so that JupyterLab has the terminal and every signal to itself.
lab:
	@exec $(PYTHON) start.py lab $(ARGS)

test:
	@exec $(PYTHON) start.py test

test-quick:
	@exec $(PYTHON) start.py test quick

test-deep:
	@exec $(PYTHON) start.py test deep

bench:
	@exec $(PYTHON) start.py test bench

# Pins every dependency for every platform; torch is held at the version the course was tried with.
pins:
	$(PYTHON) start.py install
	echo 'torch==2.13.0' > .torch-pin
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --no-header --no-annotate --quiet --python-version 3.11 \
	  --all-extras --upgrade --constraint .torch-pin pyproject.toml -o constraints.txt
	rm .torch-pin

clean-venv:
	rm -rf $(VENV)
