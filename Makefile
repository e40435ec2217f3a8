# Every target sets itself up: python3 and make are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
READY := $(VENV)/.ready
CORE := $(VENV)/.core

.PHONY: demo test check slow-test docs results wheel-test newcomer bench campaign mutants clean

demo: $(CORE)  ## CAQL learns Pendulum in the range [-0.66, 0.66]
	$(BIN)/python examples/demo.py

test: $(READY)  ## all the fast tests
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

slow-test: $(READY)  ## learning, measured against return thresholds: about half an hour
	$(BIN)/pytest -m slow -n 2 --timeout 3600

docs: $(READY)  ## the documentation, into build/site: any warning is an error, nothing is loaded from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html, or serve it, for its search: python3 -m http.server -d build/site"

results: $(READY)  ## every report, and the README's tables, made anew from the committed runs: ten seconds
	$(BIN)/python docs/tools/results.py

wheel-test: $(READY)  ## the wheel in clean environments of every supported Python that is installed
	$(BIN)/python packaging/wheels.py

newcomer: $(READY)  ## from a fresh clone to the first picture: how long it takes
	$(BIN)/python packaging/newcomer.py

bench: $(READY)  ## solvers, training step, acting and start-up, side by side
	$(BIN)/caql bench maxq
	$(BIN)/python benchmarks/training_step.py

MINUTES ?= 60
campaign: $(READY)  ## fuzzed networks, kills, mutated files, bad command lines; goes on with new seeds each time
	$(BIN)/python -m campaign --minutes $(MINUTES) $(if $(PROBLEMS),--proofs $(PROBLEMS)) $(if $(KILLS),--kills $(KILLS))

mutants: $(READY)  ## recorded changes to the source, each of which some test must notice: hours
	$(BIN)/python -m tests.mutants

# The demonstration needs a third of what the tests need.
$(CORE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[report]"
	touch $@

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev]"
	@# Commercial solvers run small models without a licence; where they do not install, their tests fall away.
	-$(PIP) -e ".[gurobi,cplex]"
	touch $(CORE) $@

clean:
	rm -rf $(VENV) build dist
