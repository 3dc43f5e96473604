# Every command of the project. `make demo` and `make test` need Python 3.11 or newer and a C++ compiler, nothing else:
# they set up their own environment in .venv, by pip and by package name.

PYTHON ?= python3
VENV ?= .venv
IN = $(VENV)/bin
PIP = $(IN)/python -m pip --disable-pip-version-check
# Bytecode is written when a module is first imported: most modules of large packages never are.
FETCH = $(PIP) install -q --no-compile
INSTALL = $(FETCH) --no-build-isolation -e
TORCH = torch==2.13.0
# What the tests of the CUDA kernels need where there is no GPU: CuPy's names, and the compiler.
CUDA = cupy-cuda12x nvidia-cuda-nvrtc-cu12
# When to build again; the build itself looks closer and compiles only what changed.
SOURCES := $(shell find cext setup.py pyproject.toml -type f)
# Two workers: the tests themselves use threads, and more of them win nothing on a small machine.
WORKERS ?= 2
ROUNDS ?= 5

.PHONY: help demo experiments docs test fuzz gpu-check lint format bench debug sanitize tsan wheel dist-check clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo        train two networks with layer normalization on real digits, draw their curves'
	@echo 'make experiments what documents say about norms, measured: examples/results (full setting: ARGS=)'
	@echo 'make docs        the site, in docs/_build: every page runs while it is built'
	@echo 'make test        the whole test suite (pytest options in ARGS)'
	@echo 'make fuzz        random calls of everything public: no crash, hang or leak (SECONDS=60)'
	@echo 'make gpu-check   the suite on a GPU (or the emulation), compute-sanitizer, the benchmarks on it'
	@echo 'make lint        ruff, cython-lint, clang-format, mypy'
	@echo 'make format      let ruff and clang-format mend what they can'
	@echo 'make bench       compare with PyTorch and JAX (ROUNDS=5)'
	@echo 'make debug       the suite on a build with bounds checks'
	@echo 'make sanitize    the suite on a build with AddressSanitizer and UBSan'
	@echo 'make tsan        the tests of threads on a build with ThreadSanitizer'
	@echo 'make wheel       a wheel and a source archive in dist/'
	@echo 'make dist-check  install both where no source is and run the suite'
	@echo 'make clean       remove all that was built'

# --- environment and build ---------------------------------------------------------------------------------------

$(IN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minigrad needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# Stamps in the environment say what it holds: the build, and one set of packages each.
$(VENV)/built: $(IN)/python $(SOURCES)
	@echo 'compiling minigrad: a minute or two on two cores'
	$(FETCH) 'setuptools>=77' 'Cython>=3.1'
	$(INSTALL) .
	@touch $@

$(VENV)/examples $(VENV)/lint $(VENV)/docs: $(VENV)/%: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[$*]'
	@touch $@

$(VENV)/peers: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[examples,peers]'
	@touch $@

$(VENV)/test: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[test,docs]'
	$(FETCH) '$(TORCH)' || echo 'PyTorch cannot be installed here: the tests against it will not run'
	$(FETCH) playwright || echo 'Playwright cannot be installed here: pages are not tested in a browser'
	$(FETCH) $(CUDA) || echo 'CuPy or NVRTC cannot be installed here: the CUDA kernels run in emulation only'
	@touch $@

# --- use -----------------------------------------------------------------------------------------------------------

demo: $(VENV)/built $(VENV)/examples
	$(IN)/python examples/digits.py $(ARGS)

experiments: ARGS = --quick
experiments: $(VENV)/built $(VENV)/examples
	$(IN)/python examples/report.py $(ARGS)

docs: export PATH := $(CURDIR)/$(IN):$(PATH)
docs: $(VENV)/built $(VENV)/docs
	$(IN)/sphinx-build -q -T -W --keep-going -b html docs docs/_build/html $(ARGS)

test: $(VENV)/built $(VENV)/test
	$(IN)/python -m pytest -n $(WORKERS) $(ARGS)

fuzz: SECONDS = 60
fuzz: $(VENV)/built $(VENV)/test
	PYTHONPATH=tests $(IN)/python -m fuzz --seconds $(SECONDS) $(ARGS)

# The commands themselves serve where no environment can be made. The sanitizer slows every kernel many times over: it
# sees each of them in the tests of operations.
gpu-check: $(VENV)/built $(VENV)/test
	MINIGRAD_TEST_DEVICES=cuda:0 $(IN)/pytest -n $(WORKERS) $(ARGS)
	@if nvidia-smi > /dev/null 2>&1 && command -v compute-sanitizer > /dev/null; then \
		MINIGRAD_TEST_DEVICES=cuda:0 compute-sanitizer --error-exitcode 1 $(IN)/pytest tests/ops -k cuda $(ARGS); \
	else echo 'compute-sanitizer was not run: it needs a GPU and the CUDA toolkit'; fi
	@if nvidia-smi > /dev/null 2>&1; then $(FETCH) 'jax[cuda12]' optax || echo 'JAX cannot be installed here'; fi
	$(IN)/python benchmarks/gpu.py --write

bench: $(VENV)/built $(VENV)/peers
	$(IN)/python benchmarks/compare.py --rounds $(ROUNDS) $(ARGS)
	$(IN)/python benchmarks/ops.py
	$(IN)/python benchmarks/alternate.py
	$(IN)/python benchmarks/import_time.py

# --- quality -------------------------------------------------------------------------------------------------------

CXX_FILES := $(shell find cext -name '*.cpp' -o -name '*.hpp')
PY_FILES = minigrad benchmarks docs examples tests setup.py

lint: export PATH := $(CURDIR)/$(IN):$(PATH)
lint: $(VENV)/built $(VENV)/lint
	$(IN)/ruff check $(PY_FILES)
	$(IN)/ruff format --check $(PY_FILES)
	$(IN)/cython-lint cext
	$(IN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(IN)/mypy

format: $(VENV)/built $(VENV)/lint
	$(IN)/ruff check --fix $(PY_FILES)
	$(IN)/ruff format $(PY_FILES)
	$(IN)/clang-format -i $(CXX_FILES)

# All checking builds live in build/ beside the ordinary one and run from there; PYTHONSAFEPATH keeps the processes that
# tests start from finding the ordinary one in the current folder, and scripts from finding what lies beside them.
debug: $(VENV)/built $(VENV)/test
	MINIGRAD_DEBUG=1 $(IN)/python setup.py -q build --build-lib build/debug/lib
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/debug/lib:$(CURDIR)/examples MINIGRAD_EXPECT_BUILD=build/debug/lib $(IN)/pytest -n $(WORKERS) $(ARGS)

# CPython itself leaks at exit and needs the sanitizer loaded first; PYTHONMALLOC shows it every allocation. Sizes beyond
# memory are an error to be raised, not to abort at. Freed memory is held back for a while, so that its use is seen; for
# the tests of memory, which run in a process of their own whatever ARGS says, only 4 MB of it: full before they begin to
# measure. A report goes to a file, because pytest takes what it captured with it, and is an error whatever became of the
# process; the warning that there is no such memory is none.
sanitize: REPORT = $(CURDIR)/build/sanitize/report
sanitize: $(VENV)/built $(VENV)/test
	MINIGRAD_SANITIZE=1 $(IN)/python setup.py -q build --build-lib build/sanitize/lib
	rm -f $(REPORT).*
	export PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/sanitize/lib:$(CURDIR)/examples PYTHONMALLOC=malloc \
	MINIGRAD_EXPECT_BUILD=build/sanitize/lib UBSAN_OPTIONS=print_stacktrace=1:log_path=$(REPORT) \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:log_path=$(REPORT) \
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libstdc++.so)"; \
	$(IN)/pytest -n $(WORKERS) --ignore tests/test_memory.py $(ARGS); suite=$$?; \
	ASAN_OPTIONS=$$ASAN_OPTIONS:quarantine_size_mb=4 $(IN)/pytest tests/test_memory.py; memory=$$?; \
	if cat $(REPORT).* 2> /dev/null | grep -v 'WARNING: AddressSanitizer failed to allocate'; then exit 1; fi; exit $$((suite | memory))

# The tests that have to do with threads. Nothing is suppressed: CPython, NumPy and OpenBLAS are not instrumented, and
# what the GIL orders is known from the mutex and the condition that it is made of. Left out are children of a fork, in
# which ThreadSanitizer starts no threads (all of test_processes), the test that races for elements on purpose (in
# test_hostile), the test that measures time beside processes that spin, and instruction sets, of which this build has
# one. Where Linux spreads addresses as far as it can, an older ThreadSanitizer finds the memory taken that it wants for
# itself: setarch turns that off, where it may.
tsan: REPORT = $(CURDIR)/build/tsan/report
tsan: THREADED = (thread or races or test_loader) and not fork and not spin and not instruction_set and not hostile and not processes
tsan: $(VENV)/built $(VENV)/test
	MINIGRAD_SANITIZE=thread $(IN)/python setup.py -q build --build-lib build/tsan/lib
	rm -f $(REPORT).*
	export PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/tsan/lib:$(CURDIR)/examples MINIGRAD_TEST_DEVICES=cpu \
	MINIGRAD_EXPECT_BUILD=build/tsan/lib TSAN_OPTIONS=log_path=$(REPORT); \
	$$(setarch -R true 2> /dev/null && echo setarch -R) env LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libtsan.so)" \
	$(IN)/pytest --ignore tests/cuda -k '$(THREADED)' $(ARGS); suite=$$?; \
	if cat $(REPORT).* 2> /dev/null; then exit 1; fi; exit $$suite

# --- distribution --------------------------------------------------------------------------------------------------

wheel: $(VENV)/built
	$(FETCH) build
	rm -rf dist
	$(IN)/python -m build -o dist

# A fresh environment and a copy of the tests in an empty folder: nothing of the source tree is within reach.
dist-check: wheel
	@set -e; for archive in $(CURDIR)/dist/*.whl $(CURDIR)/dist/*.tar.gz; do \
		echo "--- $$archive"; \
		folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
		$(PYTHON) -m venv "$$folder/venv"; \
		"$$folder/venv/bin/pip" install -q "$$archive[test]"; \
		"$$folder/venv/bin/pip" install -q '$(TORCH)' || true; \
		cp -r tests "$$folder/tests"; \
		(cd "$$folder" && MINIGRAD_EXPECT_BUILD="$$folder/venv" venv/bin/pytest -n $(WORKERS) tests $(ARGS)); \
		rm -rf "$$folder"; \
	done

clean:
	rm -rf build dist wheelhouse *.egg-info $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.png
	find minigrad tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
	find minigrad -name '*.so' -delete
