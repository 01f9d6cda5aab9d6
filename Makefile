# What people and CI call. Everything runs from the checkout, in .venv.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
# What `make bench` hands to every benchmark.
BENCH_FLAGS ?= --quick
# Of `make venv-cosyvoice`: the Python that CosyVoice pins, and which of torch, trt and vllm it gets.
PYTHON310 ?= python3.10
PARTS     ?= torch

BIN    := .venv/bin
# A file's tests run one after another, files on every core.
SPREAD  = -n logical --dist loadfile
PYTEST  = $(BIN)/python -m pytest $(if $(COVERAGE),--cov --cov-append --cov-report= --cov-fail-under=0)
# Byte code is written when a module is first imported: most of what is installed never is. So it
# is where the environment forbids it, too, or each process of a stack would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
LOCKED  = $(PIP) --require-hashes --requirement

# What the engine of `make up` and `make doctor` is, by ENGINE=…; cosyvoice has its own Python once
# `make venv-cosyvoice` has made it.
COSY_PYTHON = $(wildcard $(CURDIR)/.venv-cosyvoice/bin/python)
COSY_FOLDERS = "checkout": "$(COSYVOICE_DIR)", "model_dir": "$(MODEL_DIR)"
COSY_VOICES = $(if $(VOICES_DIR),$(COMMA) "voices_dir": "$(VOICES_DIR)")
COMMA := ,
CHOSEN = $(if $(ENGINE),VOICEMILL_ENGINE='$(ENGINE)') $(if $(filter cosyvoice,$(ENGINE)),\
	VOICEMILL_ENGINE_OPTIONS='{$(COSY_FOLDERS)$(COSY_VOICES)}' VOICEMILL_WORKERS="$${VOICEMILL_WORKERS:-1}" \
	VOICEMILL_ENGINE_PYTHON="$${VOICEMILL_ENGINE_PYTHON:-$(COSY_PYTHON)}")

.PHONY: help venv venv-all venv-cosyvoice doctor demo up test test-all test-rest long chaos bench gpu-bench check lock clean

help:
	@echo 'make demo      a CSV spoken by a whole stack, into out/'
	@echo 'make doctor    what this machine lacks for a stack, and the commands that bring it'
	@echo 'make up        the stack in the foreground, until Ctrl-C'
	@echo '    both take ENGINE=cosyvoice MODEL_DIR=... COSYVOICE_DIR=... (docs/quickstart-cosyvoice.md)'
	@echo 'make test      the tests (minutes); test-all: all that CI runs; long: full-size chaos and soak'
	@echo 'make check     format, lint, types, contracts, licences, known vulnerabilities'
	@echo 'make bench     the benchmarks; BENCH_FLAGS= for full size'
	@echo 'make gpu-bench speed and memory on this GPU, into out/gpu-bench.md; MODEL_DIR=... for cosyvoice'
	@echo 'make chaos     the tests that hurt a whole stack; CHAOS_SEED=N plans a run again'
	@echo 'make venv      .venv from the lock; venv-all: with every extra and torch'
	@echo 'make venv-cosyvoice COSYVOICE_DIR=...   .venv-cosyvoice: the packages that CosyVoice pins'
	@echo 'make lock      the locks again from pyproject.toml; UPGRADE=1 takes newer versions'
	@echo 'make clean     remove .venv, out/, .demo/ and caches'

venv: .venv/venv.stamp
venv-all: .venv/full.stamp

# Made anew when the lock changes, so that it never holds what the lock no longer names.
.venv/venv.stamp: requirements/pip.txt requirements/venv.txt
	$(PYTHON) -m venv --clear .venv
	$(LOCKED) requirements/pip.txt
	$(LOCKED) requirements/venv.txt
	@# The checkout itself is importable from any folder, and nothing of it is copied.
	echo '$(CURDIR)' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/voicemill.pth"
	touch $@

# torch stands in no lock: which build is right depends on the machine. Here any one will do.
.venv/full.stamp: .venv/venv.stamp requirements/full.txt requirements/gpl.txt
	$(LOCKED) requirements/full.txt
	$(LOCKED) requirements/gpl.txt
	$(PIP) '$(TORCH)'
	touch $@

venv-cosyvoice: venv
	$(BIN)/python -m worker.engines.cosy.venv --checkout '$(COSYVOICE_DIR)' --venv .venv-cosyvoice \
		--python '$(PYTHON310)' --parts '$(PARTS)'

demo: venv
	$(BIN)/python scripts/demo.py

doctor: venv
	@$(CHOSEN) $(BIN)/python scripts/doctor.py

up: venv
	$(CHOSEN) $(BIN)/python scripts/up.py

test: venv
	$(PYTEST) $(SPREAD)

# What `test` leaves out; the two together are what CI runs.
test-rest: venv-all
	$(PYTEST) $(SPREAD) -m 'full and not long'
	scripts/check

test-all: venv-all
	rm -f .coverage .coverage.*
	$(MAKE) COVERAGE=1 test
	$(MAKE) COVERAGE=1 test-rest

long: venv-all
	$(PYTEST) -m long --log-cli-level=WARNING

chaos: venv
	$(PYTEST) -m '' --log-cli-level=WARNING tests/chaos

bench: venv
	set -e; for one in benchmarks/*.py; do $(BIN)/python $$one $(BENCH_FLAGS); done

# torch is to be one that knows the card: make venv-all TORCH=...
gpu-bench: venv-all
	$(BIN)/python scripts/gpu_check.py --bench --report out/gpu-bench.md $(if $(MODEL_DIR),--engine cosyvoice \
		--engine-options '{$(COSY_FOLDERS)$(COSY_VOICES)}' $(addprefix --engine-python ,$(COSY_PYTHON)))

check: venv
	scripts/check

lock: venv-all
	scripts/lock $(if $(UPGRADE),--upgrade)

clean:
	rm -rf .venv .venv-cosyvoice .demo out build dist .coverage .coverage.* htmlcov \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
