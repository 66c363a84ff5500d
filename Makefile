# Every command of this project. `make help` lists them.
# `make demo` and `make test` do all the set-up on a fresh machine.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
export PYSPARK_PYTHON := $(abspath $(BIN))/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# A cargo that is a rustup proxy finds its toolchain even when HOME is somebody else's.
export RUSTUP_HOME ?= $(shell tools/find_rustup.sh)

# Containers often set it. The tests start hundreds of Pythons, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

CYCLES ?= 200
MODE ?=
CRASH_OF_pop = pop_crash
CRASH_OF_timer = timer_crash
CRASH_OF_lite = light_crash
KILLS ?= 500
FAIL_OVERS ?= 100
SPARK_KILLS ?= 50
FRAMES ?= 5000
MUTANTS ?= 200
MUTANTS_CORE ?= 30
SEED ?= 1
FUZZ_SEED ?= 0
ROUNDS ?= 1
WORKLOADS ?= 100
SECONDS ?= 60
STATES ?= 1000
SEEDS ?= 10000
KILL ?= 0
WORKERS ?= 2
NEXT ?= build/spark-next
NEXT_TESTS := \
	tests/spark/test_spark_source.py::test_batch_has_every_message_and_column \
	tests/spark/test_spark_source.py::test_stream_goes_on_where_it_stopped \
	tests/spark/test_spark_sink.py::test_a_stream_is_copied_from_topic_to_topic \
	tests/spark/test_spark_sink.py::test_what_cannot_be_a_message_is_refused \
	tests/spark/test_spark_log_meta.py::test_metadata_is_a_set_of_tables
RUST_SOURCES := $(shell find crates -name '*.rs' -not -path '*/fuzz/*') Cargo.toml Cargo.lock crates/core/Cargo.toml crates/native/Cargo.toml

# JVMs of tests live for minutes: the second compiler takes a third of their CPU and gives nothing.
SHORT_JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# Most tests wait for something most of the time, so two run at once (WORKERS=1: one).
# Neighbours stay together, as they may share a broker that a fixture of their module has started.
# A file's tests stay together where they share a cluster (interop): one may need what another made.
PARALLEL := -n $(WORKERS) --dist worksteal
# Tests against Java take less than half of their time as CPU, unit tests a quarter: more run at once.
times = $(if $(filter 1,$(WORKERS)),1,$(shell echo $$(($(1) * $(WORKERS)))))
PARALLEL_UNIT := -n $(call times,3) --dist worksteal

.PHONY: help check-tools setup grpc-messages native-dev demo test test-rust test-unit test-spark test-differential \
	test-spark-next test-spark-connect all format lint types imports native interop interop-jars partition deploy browser site bench bench-relay bench-spark crash crash-timers crash-pop crash-light seeds powerloss \
	powerloss-ext4 process-faults attack budget kills spark-kills iofaults corruption faults fuzz fuzz-python fuzz-atheris fuzz-rust audit written mutants setting-mutants test-nightly nightly clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

# --- set-up ----------------------------------------------------------------------------------

check-tools:
	@tools/check_tools.sh

$(VENV)/.made: | check-tools
	python3 -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(VENV)/.dependencies: $(VENV)/.made requirements/dev.txt
	@echo "installing pinned dependencies (PySpark is the large one)"
	$(BIN)/uv pip install -q --python $(PY) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.native: $(VENV)/.dependencies $(RUST_SOURCES) pyproject.toml
	@echo "building the native wheel"
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop -q --release --locked --uv
	@$(PY) -c "import roquet.roquet_native"
	@touch $@

src/roquet/proxy/messages.binpb: requirements/grpc-messages.txt tools/grpc_messages.py | $(VENV)/.dependencies
	$(PY) -m tools.grpc_messages

grpc-messages: src/roquet/proxy/messages.binpb ## make the message definitions of gRPC of a pinned package

setup: $(VENV)/.native src/roquet/proxy/messages.binpb ## create .venv, install pinned dependencies, build the native module

native-dev: ## build the native module quickly and put it beside the sources
	cargo build --profile dev-fast -p roquet-native
	@# Moved into place: a running broker may have the old file mapped.
	cp target/dev-fast/libroquet_native.so src/roquet/.roquet_native.new
	mv src/roquet/.roquet_native.new src/roquet/roquet_native.abi3.so

# --- using it --------------------------------------------------------------------------------

demo: setup ## move a real data set through broker, Spark and audit; KILL=5 kills the Spark job five times
	$(PY) -m demo.run --kill $(KILL)

# --- tests -----------------------------------------------------------------------------------

test: setup test-rust test-unit test-differential test-spark ## every test but those against Java

test-rust: ## the core, power-loss states included
	cargo test -q --profile dev-fast --locked -p roquet-core

test-unit: setup ## Python, with real sockets and files
	$(PY) -m pytest tests/test_tidy.py tests/unit $(PARALLEL_UNIT)

test-differential: setup ## fast path against slow path
	$(PY) -m pytest tests/differential $(PARALLEL)

test-spark: setup ## the Spark source and sink, the demo's parts, in a real JVM
	SPARK_SUBMIT_OPTS="$(SHORT_JVM)" $(PY) -m pytest tests/spark --timeout 600

test-spark-next: setup ## five Spark tests on the next PySpark, in an environment of its own
	python3 -m venv $(NEXT)
	$(BIN)/uv pip install -q --python $(NEXT)/bin/python --require-hashes -r requirements/spark-next.txt
	PYTHONPATH=src SPARK_SUBMIT_OPTS="$(SHORT_JVM)" $(NEXT)/bin/python -m pytest --timeout 900 $(NEXT_TESTS)

test-spark-connect: setup ## source, sink, a stream and jobs over Spark Connect; `make test-nightly` has it too
	SPARK_SUBMIT_OPTS="$(SHORT_JVM)" $(PY) -m pytest tests/nightly/test_spark_connect.py --timeout 900

interop-jars: setup ## fetch the RocketMQ jars
	$(PY) -m roquet.testing.java_jars

interop: interop-jars ## against the Java name server, broker, clients and mqadmin 5.5.0
	@# In the order of tests/interop/conftest.py, which knows how long the files take.
	$(PY) -m pytest tests/interop --timeout 300 -n $(call times,2) --dist loadfile --no-loadscope-reorder

browser: setup ## the live page in a real browser (chromium)
	$(PY) -m pytest tests/browser --timeout 300

site: setup ## the documentation as a site in build/site/html, links and anchors checked
	$(PY) -m tools.pages.documentation_site

partition: setup ## brokers and relay on hosts of their own, cut from one another (root, iproute2)
	$(PY) -m pytest tests/partition --timeout 200

deploy: setup ## the systemd units, verified by systemd; compose file and Helm chart; the wheel, installed by itself
	$(PY) -m pytest tests/deploy

crash: setup ## kill -9 the broker CYCLES times in each flush mode and account for every message; MODE=pop, timer or lite
	$(PY) -m tools.faults.$(or $(CRASH_OF_$(MODE)),crash) --cycles $(CYCLES)

crash-timers: setup ## kill -9 the broker CYCLES times while timer messages wait, account for each of them
	$(PY) -m tools.faults.timer_crash --cycles $(CYCLES)
	$(PY) -m tools.faults.timer_crash --cycles $(CYCLES) --flush async --harm

crash-pop: setup ## kill -9 the broker CYCLES times while messages are popped, account for each of them
	$(PY) -m tools.faults.pop_crash --cycles $(CYCLES)
	$(PY) -m tools.faults.pop_crash --cycles $(CYCLES) --flush async --harm

crash-light: setup ## kill -9 the broker CYCLES times while light topics are used, account for each message
	$(PY) -m tools.faults.light_crash --cycles $(CYCLES)

seeds: setup ## SEEDS drawn histories of POP's redelivery and merge buffer, and of the timer wheel
	POP_SEEDS=$(SEEDS) $(PY) -m pytest -n $(WORKERS) --timeout 7200 tests/unit/broker_pop/test_revive_seeds.py tests/unit/broker_pop/test_buffer_seeds.py
	TIMER_STATES=$(SEEDS) cargo test -q --profile dev-fast --locked -p roquet-core --test timers

powerloss: setup ## 20,000 power-loss states of the store, 1,000 a mode on ext4 where that can be mounted
	POWERLOSS_STATES=20000 cargo test -q --profile dev-fast --locked -p roquet-core --test powerloss powerloss:: -- --nocapture
	$(PY) -m tools.powerloss.ext4 --states $(STATES) --if-possible

powerloss-ext4: setup ## STATES power-loss states a mode of a broker on ext4 (root, loop mounts)
	$(PY) -m tools.powerloss.ext4 --states $(STATES)

process-faults: setup ## calls that fail, a full disk, a clock that jumps, in a real broker process
	$(PY) -m tools.faults.process_faults

attack: setup ## every request code by a raw client, with accounts that may do nothing or read one topic
	$(PY) -m tools.attack
	$(PY) -m tools.attack --slow-path
	$(PY) -m tools.attack.frames --frames $(FRAMES)

kills: setup ## KILLS kills of a broker and FAIL_OVERS of a pair, judged by a client and checker of their own
	$(PY) -m tools.attack.kills --cycles $(KILLS) --fail-overs $(FAIL_OVERS)

spark-kills: setup ## SPARK_KILLS kills each of driver, executor, tasks and broker under both deliveries that write once, and under cdc; hours
	$(PY) -m tools.spark_kills --delivery idempotent --each $(SPARK_KILLS)
	$(PY) -m tools.spark_kills --delivery transactional --each $(SPARK_KILLS)
	$(PY) -m tools.spark_kills.changes --each $(SPARK_KILLS)
	$(PY) -m tools.spark_kills.changes --format delta --each $(SPARK_KILLS)

iofaults: ## each call to the disk fails once, in WORKLOADS drawn workloads of the store
	IOFAULTS_WORKLOADS=$(WORKLOADS) cargo test -q --profile dev-fast --locked -p roquet-core --test powerloss powerloss_faults:: -- --nocapture

budget: setup ## the worst request of each code: exit 1 when a turn of the loop takes more than 20 ms of CPU
	$(PY) -m tools.budget

corruption: setup ## damage fifteen kinds of files in ten ways, ROUNDS draws of each
	$(PY) -m tools.faults.corruption --rounds $(ROUNDS)

fuzz-python: setup ## every reader in Python, SECONDS together, on any Python
	$(PY) -m tools.fuzz.python --seconds $(SECONDS)

fuzz-atheris: setup ## ten groups of readers in Python, side by side for SECONDS, guided by coverage (CPython 3.11)
	$(BIN)/uv pip install -q --python $(PY) --target build/fuzz --require-hashes -r requirements/fuzz.txt
	PYTHONPATH=build/fuzz $(PY) -m tools.fuzz.atheris --seconds $(SECONDS) --seed $(FUZZ_SEED)

fuzz-rust: setup ## every fuzz target of the core, side by side for SECONDS, guided by coverage (a C++ compiler)
	$(PY) -m tools.fuzz.rust --seconds $(SECONDS) --seed $(FUZZ_SEED)

fuzz: fuzz-python fuzz-atheris fuzz-rust ## everything that reads bytes from a peer or a disk, SECONDS each way

faults: ## the short form of every fault programme
	$(MAKE) crash CYCLES=5
	$(PY) -m tools.powerloss.ext4 --states 50 --load 1 --window 10 --if-possible
	$(PY) -m tools.faults.process_faults --short
	$(MAKE) attack FRAMES=500
	$(MAKE) kills KILLS=5 FAIL_OVERS=2
	$(MAKE) budget
	$(MAKE) corruption
	$(MAKE) iofaults WORKLOADS=10
	$(MAKE) fuzz-python SECONDS=20
	$(MAKE) fuzz-atheris SECONDS=60 FUZZ_SEED=1
	$(MAKE) fuzz-rust SECONDS=60 FUZZ_SEED=1
	$(PY) -m tools.setting_mutants --sample 6 --seed 1

mutants: setup ## change rules one at a time, MUTANTS in Python and MUTANTS_CORE in Rust drawn by SEED, and list what no test notices
	$(PY) -m tools.mutants --sample $(MUTANTS) --seed $(SEED)
	$(PY) -m tools.mutants.core --sample $(MUTANTS_CORE) --seed $(SEED)

setting-mutants: setup ## run the test of each setting while that setting is ignored: exit 1 when one does not notice
	$(PY) -m tools.setting_mutants

test-nightly: setup ## every folder of tests/nightly: what takes hours
	$(PY) -m pytest tests/nightly --timeout 7200

nightly: all interop partition powerloss fuzz setting-mutants test-nightly test-spark-next ## what is too long for every change
	$(MAKE) crash
	$(MAKE) crash MODE=pop
	$(MAKE) crash MODE=timer
	$(MAKE) crash MODE=lite
	$(MAKE) seeds
	$(PY) -m tools.faults.proxy_kill --kills 40
	$(PY) -m tools.fuzz.grpc_calls --seconds 900 --mode cluster
	$(PY) -m tools.fuzz.grpc_calls --seconds 900 --mode local
	$(PY) -m tools.fuzz.grpc_frames --frames 10000000 --mode cluster
	$(PY) -m tools.fuzz.grpc_frames --frames 10000000 --mode local
	for make in java go python nodejs; do $(PY) -m tools.faults.proxy.kill_clients --client $$make --kills 100 || exit 1; done
	$(PY) -m tools.faults.crash --processors --cycles $(CYCLES)
	$(MAKE) attack
	$(MAKE) kills
	$(MAKE) spark-kills
	$(MAKE) corruption ROUNDS=20
	$(MAKE) iofaults WORKLOADS=1000
	$(MAKE) process-faults
	$(MAKE) fuzz SECONDS=1800
	$(MAKE) mutants SEED=$$(date +%j)
	$(MAKE) setting-mutants

# --- gates -----------------------------------------------------------------------------------

all: setup format lint types imports native test ## what must pass before a change lands

format: setup
	$(BIN)/ruff format --check .
	cargo fmt --check

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(PY)

imports: setup
	$(BIN)/lint-imports --no-cache

native: setup
	cargo clippy -q --all-targets --locked -- -D warnings
	@# Their locks follow the core's dependencies; the fuzzers are built much later.
	cargo metadata -q --locked --format-version 1 --manifest-path crates/core/fuzz/Cargo.toml > /dev/null
	cargo metadata -q --locked --format-version 1 --manifest-path bench/loadgen/Cargo.toml > /dev/null
	$(BIN)/python -m mypy.stubtest roquet.roquet_native --ignore-missing-stub

written: setup ## write again what is made from the source: pages of reference, the blocking client
	$(PY) -m tools.pages.configuration
	$(PY) -m tools.pages.java_settings
	$(PY) -m tools.pages.commands
	$(PY) -m tools.pages.spark_options
	$(PY) -m tools.pages.features
	$(PY) -m tools.sync_admin
	$(PY) -m tools.sync_client

audit: setup ## known vulnerabilities in what we depend on: a report, not a gate
	-$(BIN)/pip-audit --require-hashes --disable-pip -r requirements/base.txt
	-command -v cargo-audit >/dev/null && cargo audit

# --- measuring -------------------------------------------------------------------------------

bench: setup interop-jars ## send, pull, start and memory beside Java, in one run
	$(PY) -m bench.run

bench-spark: setup ## the Spark sources beside Spark's own ceiling and Kafka's connector, planning, sink, jobs; some 30 minutes
	$(PY) -m bench.spark.sources
	$(PY) -m bench.spark.beside_kafka
	$(PY) -m bench.spark.planning 1000000
	$(PY) -m bench.spark.sink
	$(PY) -m bench.spark.lake_list
	$(PY) -m bench.spark.staging
	$(PY) -m bench.spark.jobs

bench-relay: setup ## the relay beside one hop of bare asyncio
	$(PY) -m bench.relay

clean: ## remove what was built here
	rm -rf build $(VENV) target src/roquet/*.so
