# Every command of the project. `make demo` and `make test` need only Python 3.11 or newer and a C++ compiler: they set
# up their own environment in .venv with pip, by package name.

PYTHON ?= python3
VENV ?= .venv
IN = $(VENV)/bin
PIP = $(IN)/python -m pip --disable-pip-version-check
# Bytecode is written when a module is first imported; most modules of large packages never are.
FETCH = $(PIP) install -q --no-compile
INSTALL = $(FETCH) --no-build-isolation -e
TORCH = torch==2.13.0
# The tests of the CUDA kernels need CuPy's names and the NVRTC compiler even without a GPU.
CUDA = cupy-cuda12x nvidia-cuda-nvrtc-cu12
# A change to any of these triggers a build, which compiles only what changed.
SOURCES := $(shell find cext setup.py pyproject.toml -type f -not -name '*.pyc')
# The tests use threads themselves, so more than two workers gain nothing on a small machine.
WORKERS ?= 2
PARALLEL = -n $(WORKERS) --dist worksteal
ROUNDS ?= 5

.PHONY: help demo experiments docs test test-all fuzz gpu-check lint format bench debug clang sanitize tsan wheel \
	dist-check wheel-requirements clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo        train two networks with layer normalization on real digits and plot their curves'
	@echo 'make experiments measure common claims about normalization: examples/results (full runs: ARGS=)'
	@echo 'make docs        build the site in docs/_build, executing every page'
	@echo 'make test        run one case of every behavior, without PyTorch (pytest options in ARGS)'
	@echo 'make test-all    run the whole test suite: every combination, PyTorch, the site'
	@echo 'make fuzz        call the public interface at random, looking for crashes, hangs and leaks (SECONDS=60)'
	@echo 'make gpu-check   run the suite, compute-sanitizer and the benchmarks on a GPU (or in emulation)'
	@echo 'make lint        run ruff, cython-lint, clang-format and mypy'
	@echo 'make format      let ruff and clang-format fix what they can'
	@echo 'make bench       compare with PyTorch and JAX (ROUNDS=5)'
	@echo 'make debug       run the suite on a build with bounds checks'
	@echo 'make clang       run the tests of invariances on a build by Clang, without warnings (CLANG=clang++)'
	@echo 'make sanitize    run the suite on a build with AddressSanitizer and UBSan'
	@echo 'make tsan        run the threading tests on a build with ThreadSanitizer'
	@echo 'make wheel       build a wheel and a source archive in dist/'
	@echo 'make dist-check  install both away from the source tree and run the suite'
	@echo 'make wheel-requirements   resolve what the tests of every wheel of a release need'
	@echo 'make clean       remove everything that was built'

# --- environment and build ---------------------------------------------------------------------------------------

$(IN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minigrad needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# Each stamp file in the environment stands for the build or for one installed set of packages.
$(VENV)/built: $(IN)/python $(SOURCES)
	@echo 'Compiling minigrad takes about two minutes on two cores.'
	$(FETCH) 'setuptools>=77' 'Cython>=3.3'
	$(IN)/python setup.py -q build_ext --inplace
	$(INSTALL) .
	@touch $@

$(VENV)/examples $(VENV)/lint $(VENV)/docs $(VENV)/test: $(VENV)/%: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[$*]'
	@touch $@

$(VENV)/peers: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[examples,peers]'
	@touch $@

$(VENV)/test-all: pyproject.toml | $(VENV)/built
	$(INSTALL) '.[test,docs]'
	$(FETCH) '$(TORCH)' || echo 'PyTorch cannot be installed here: the tests that compare with it will not run'
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
	$(IN)/python -m pytest $(PARALLEL) --quick $(ARGS)

test-all: $(VENV)/built $(VENV)/test-all
	$(IN)/python -m pytest $(PARALLEL) $(ARGS)

fuzz: SECONDS = 60
fuzz: $(VENV)/built $(VENV)/test
	PYTHONPATH=tests $(IN)/python -m fuzz --seconds $(SECONDS) $(ARGS)

# Where no environment can be created, the commands below can be run by hand. compute-sanitizer slows every kernel many
# times over, so it runs only the test that uses each of them.
gpu-check: $(VENV)/built $(VENV)/test-all
	MINIGRAD_TEST_DEVICES=cuda:0 $(IN)/pytest $(PARALLEL) $(ARGS)
	@if nvidia-smi > /dev/null 2>&1 && command -v compute-sanitizer > /dev/null; then \
		for tool in memcheck racecheck synccheck; do \
			MINIGRAD_PLAIN_ALLOCATIONS=1 compute-sanitizer --tool $$tool --error-exitcode 1 \
				$(IN)/pytest tests/cuda/test_every_kernel.py || exit 1; \
		done; \
	else echo 'compute-sanitizer was not run: it needs a GPU and the CUDA toolkit'; fi
	@if nvidia-smi > /dev/null 2>&1; then $(FETCH) 'jax[cuda12]' optax || echo 'JAX cannot be installed here'; fi
	$(IN)/python benchmarks/gpu.py --write --minutes 8

bench: $(VENV)/built $(VENV)/peers
	$(IN)/python benchmarks/compare.py --rounds $(ROUNDS) $(ARGS)
	$(IN)/python benchmarks/ops.py
	$(IN)/python benchmarks/alternate.py
	$(IN)/python benchmarks/many.py
	$(IN)/python benchmarks/threads.py
	$(IN)/python benchmarks/epoch.py
	$(IN)/python benchmarks/host_time.py
	$(IN)/python benchmarks/import_time.py

# --- quality -------------------------------------------------------------------------------------------------------

CXX_FILES := $(shell find cext -name '*.cpp' -o -name '*.hpp')
PY_FILES = minigrad cext benchmarks docs examples tests setup.py

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

# All checking builds are in build/, separate from the ordinary one, and run from there. PYTHONSAFEPATH keeps processes
# that tests start from importing the ordinary build from the current folder, and scripts from importing their
# neighbors.
debug: $(VENV)/built $(VENV)/test-all
	MINIGRAD_DEBUG=1 $(IN)/python setup.py -q build --build-lib build/debug/lib
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/debug/lib:$(CURDIR)/examples MINIGRAD_EXPECT_BUILD=build/debug/lib $(IN)/pytest $(PARALLEL) $(ARGS)

# What differs between compilers is which products and sums they fuse, and so the bits of a result.
clang: CLANG = clang++
clang: INVARIANCES = tests/facts/test_invariance.py tests/facts/test_batches.py tests/ops/test_norm.py tests/ops/test_batch_norm_ops.py \
	tests/engine/test_threads.py::test_same_bits_for_any_number_of_threads
clang: $(VENV)/built $(VENV)/test-all
	CXX="$(CLANG) -Werror" $(IN)/python setup.py -q build --build-lib build/clang/lib
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/clang/lib:$(CURDIR)/examples MINIGRAD_TEST_DEVICES=cpu \
	MINIGRAD_EXPECT_BUILD=build/clang/lib $(IN)/pytest $(PARALLEL) $(INVARIANCES) $(ARGS)

# CPython itself leaks at exit and needs the sanitizer loaded first; PYTHONMALLOC=malloc lets the sanitizer see every
# allocation. An allocation that is too large must raise MemoryError rather than abort. Freed memory is quarantined for
# a while so that later accesses are detected. The memory tests always run, in a process of their own, with a quarantine
# of only 4 MB, which is full before they begin to measure. Reports go to a file, because output captured by pytest is
# lost when the process dies, and any report is a failure; the warning about a failed allocation is not one. Left out are
# forks while other threads run: AddressSanitizer takes its own locks at a fork only since LLVM 18, so the child may hang
# in an allocation (https://github.com/llvm/llvm-project/pull/75290). So is a test of a process's peak memory, to which
# the sanitizer adds an eighth and its quarantine.
sanitize: REPORT = $(CURDIR)/build/sanitize/report
sanitize: $(VENV)/built $(VENV)/test-all
	MINIGRAD_SANITIZE=1 $(IN)/python setup.py -q build --build-lib build/sanitize/lib
	rm -f $(REPORT).*
	export PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/sanitize/lib:$(CURDIR)/examples PYTHONMALLOC=malloc \
	MINIGRAD_EXPECT_BUILD=build/sanitize/lib UBSAN_OPTIONS=print_stacktrace=1:log_path=$(REPORT) \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:log_path=$(REPORT) \
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libstdc++.so)"; \
	$(IN)/pytest $(PARALLEL) --ignore tests/engine/test_memory.py \
		--deselect tests/engine/test_processes.py::test_fork_while \
		--deselect tests/saving/test_serialization.py::test_memory $(ARGS); suite=$$?; \
	ASAN_OPTIONS=$$ASAN_OPTIONS:quarantine_size_mb=4 $(IN)/pytest tests/engine/test_memory.py; memory=$$?; \
	if cat $(REPORT).* 2> /dev/null | grep -v 'WARNING: AddressSanitizer failed to allocate'; then exit 1; fi; exit $$((suite | memory))

# The tests that involve threads. Nothing is suppressed: CPython, NumPy and OpenBLAS are not instrumented, and
# ThreadSanitizer learns the ordering that the GIL imposes from the mutex and the condition variable that implement it.
# Left out are the children of a fork, in which ThreadSanitizer starts no threads (all of test_processes), the test that
# races for elements on purpose (in test_hostile), the test that measures time next to spinning processes, the tests of
# instruction sets, of which this build has only one, and ONNX Runtime, which ends its threads with a race of its own.
# With maximal address space randomization on Linux, the memory that an older ThreadSanitizer reserves for itself may
# already be taken, so setarch turns randomization off if it can.
tsan: REPORT = $(CURDIR)/build/tsan/report
tsan: THREADED = (thread or races or test_loader) and not fork and not spin and not instruction_set and not hostile and not processes
tsan: $(VENV)/built $(VENV)/test-all
	MINIGRAD_SANITIZE=thread $(IN)/python setup.py -q build --build-lib build/tsan/lib
	rm -f $(REPORT).*
	export PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/tsan/lib:$(CURDIR)/examples MINIGRAD_TEST_DEVICES=cpu \
	MINIGRAD_EXPECT_BUILD=build/tsan/lib TSAN_OPTIONS=log_path=$(REPORT); \
	$$(setarch -R true 2> /dev/null && echo setarch -R) env LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libtsan.so)" \
	$(IN)/pytest --ignore tests/cuda --ignore tests/export -k '$(THREADED)' $(ARGS); suite=$$?; \
	if cat $(REPORT).* 2> /dev/null; then exit 1; fi; exit $$suite

# --- distribution --------------------------------------------------------------------------------------------------

wheel: $(VENV)/built
	$(FETCH) build
	rm -rf dist
	$(IN)/python -m build -o dist

# A fresh environment and a copy of the tests in an empty folder keep the source tree out of reach.
dist-check: wheel
	@set -e; for archive in $(CURDIR)/dist/*.whl $(CURDIR)/dist/*.tar.gz; do \
		echo "--- $$archive"; \
		folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
		$(PYTHON) -m venv "$$folder/venv"; \
		"$$folder/venv/bin/pip" install -q "$$archive[test]"; \
		"$$folder/venv/bin/pip" install -q '$(TORCH)' || true; \
		cp -r tests "$$folder/tests"; \
		(cd "$$folder" && MINIGRAD_EXPECT_BUILD="$$folder/venv" venv/bin/pytest $(PARALLEL) tests $(ARGS)); \
		rm -rf "$$folder"; \
	done

# Asks the index, downloads nothing.
wheel-requirements: $(IN)/python
	$(FETCH) "$$(grep -o 'cibuildwheel==[0-9.]*' .github/workflows/wheels.yml)"
	PATH=$(CURDIR)/$(IN):$$PATH $(IN)/python tests/packaging/resolve_wheels.py

clean:
	rm -rf build dist wheelhouse *.egg-info $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.png
	find minigrad cext tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
	find minigrad \( -name '*.so' -o -name '*.pyi' \) -delete
