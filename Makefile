# make test: everything that must hold, from nothing but Python, pip and make.
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
PYTHON ?= python3
BIN := $(VENV)/bin
CODE := src tests benchmarks demo study

.PHONY: help demo test test-fast test-breaks test-chance test-faults test-fuzz test-package test-study check format bench docs install chromium

help:
	@echo "make demo    heads for built-in letters, with and without a teacher and re-ranking: a table, a retrieval, a page; a few minutes on two cores"
	@echo "make test    build the environment if there is none, then lint, type-check and test"
	@echo "make test-fast    the inner loop: what changes most often, in about a minute"
	@echo "make test-breaks  break the code on purpose, one place after the other, and see that a test fails each time"
	@echo "make test-chance  all tests with several processes 50 times (ROUNDS=N), two at a time beside a busy process; none may fail"
	@echo "make test-faults  kill trainings and other commands 20 times each, fill the disk, take memory; compare their end with one left alone"
	@echo "make test-fuzz    feed every reader of files thousands of damaged ones, with bounded memory"
	@echo "make test-package  build sdist and wheel, install the wheel into fresh environments and use it"
	@echo "make test-study  test study/, the experiments behind docs/results.md, and every table and number against its records"
	@echo "make check   lint and type-check only"
	@echo "make format  put the code into its usual form"
	@echo "make bench   measure speed and memory against peers (writes benchmarks/results/)"
	@echo "make docs    build the site into site/; a link that leads nowhere stops it"
	@echo "VENV=DIR     where the environment is (default .venv)"
	@echo "CHROMIUM=no  make test installs no browser by apt-get and skips the tests of pages"
	@echo "CONSTRAINTS=/dev/null  the newest versions, not those of constraints.txt (which are for Python 3.11)"

demo: install
	$(BIN)/python demo/run.py

# side by side, as many processes as there are cores up to four; one that is done takes tests over from another
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal
test: check chromium
	$(PYTEST)

# the inner loop: no process, no browser, no whole training
FAST := tests/method tests/objectives tests/evaluation tests/test_spec.py tests/test_convert.py tests/test_parts.py tests/test_options.py tests/test_presets.py
test-fast: install
	$(PYTEST) $(FAST)

# every deliberate break of the code is caught by a test
test-breaks: install
	$(BIN)/python tests/breaks.py

# Pages are tested in a real browser. Where there is none, root gets Debian's; refused or elsewhere, those tests are skipped.
CHROMIUM ?= yes
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq
chromium:
ifneq ($(CHROMIUM),no)
	@if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
	    && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	    echo "apt-get installs chromium for the tests of pages: about 120 MB, a minute or two; make test CHROMIUM=no goes without"; \
	    { $(APT) update && $(APT) install --yes chromium; } >/dev/null 2>&1 || echo "chromium cannot be installed here"; \
	fi
endif

# sdist and wheel, the wheel with the core alone and with everything. TORCH=torch==2.13.0: a certain build. DOWNLOAD=yes: all of it from the registry.
TORCH ?= torch
DOWNLOAD ?= no
test-package: install
	$(BIN)/python tests/packaging/check.py --torch "$(TORCH)" $(if $(filter yes,$(DOWNLOAD)),--download)

# signals, kills, full disks, little memory: what is tried a few times by make test is tried often
FAULTS := tests/training/test_faults.py tests/training/test_comparison_faults.py tests/cli/test_writing.py tests/training/test_ranks.py tests/search/test_kills.py
test-faults: install
	OBDSD_KILLS=20 $(BIN)/pytest $(FAULTS) -rP --durations=0

# no test that starts several processes fails by chance
ROUNDS ?= 50
test-chance: install
	$(BIN)/python tests/chance.py $(ROUNDS)

# each reader of files meets thousands of damaged ones, in a process that may take 8 GB of addresses (torch alone takes 4)
FUZZ ?= 1000
test-fuzz: install
	ulimit -v 8000000 && OBDSD_FUZZ=$(FUZZ) nice -n 19 $(BIN)/pytest tests/data/test_fuzzed_readers.py tests/training/test_readers.py tests/search/test_damage.py --hypothesis-show-statistics

test-study: install
	$(BIN)/pytest study

check: install
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: install
	$(BIN)/python -m benchmarks

docs: install
	@$(BIN)/python -c "import material, mkdocstrings_handlers.python" 2>/dev/null || \
	    $(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation --editable ".[docs]"
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict
	@echo "site/index.html; with search: $(PYTHON) -m http.server --directory site"

# Dependencies once for each state of the dependency files; the project itself (a link to this folder) each time.
DEPENDENCIES := $(VENV)/.dependencies-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

install: $(DEPENDENCIES)
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .

$(DEPENDENCIES):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint $(CONSTRAINTS) --editable ".[dev]"
	rm -f $(VENV)/.dependencies-*
	touch $@
