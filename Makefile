# Every target sets itself up: python3 and make are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check slow-test bench campaign mutants clean

demo: $(READY)  ## CAQL learns Pendulum in the range [-0.66, 0.66]
	$(BIN)/python examples/demo.py

test: $(READY)  ## all the fast tests
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

slow-test: $(READY)  ## learning, measured against return thresholds: about half an hour
	$(BIN)/pytest -m slow -n 2 --timeout 3600

bench: $(READY)  ## solvers, training step, acting and start-up, side by side
	$(BIN)/caql bench maxq
	$(BIN)/python benchmarks/training_step.py

MINUTES ?= 60
campaign: $(READY)  ## fuzzed networks, kills, mutated files, bad command lines; goes on with new seeds each time
	$(BIN)/python -m campaign --minutes $(MINUTES) $(if $(PROBLEMS),--proofs $(PROBLEMS)) $(if $(KILLS),--kills $(KILLS))

mutants: $(READY)  ## recorded changes to the source, each of which some test must notice: hours
	$(BIN)/python -m tests.mutants

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# Commercial solvers run small models without a licence; where they do not install, their tests fall away.
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[gurobi,cplex]"
	touch $@

clean:
	rm -rf $(VENV) build dist
