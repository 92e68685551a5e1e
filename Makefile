# One obvious way to run each thing. `make help` lists them.

# A Rust that was installed a moment ago is found without a new login, and before an older one of the
# distribution.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# What `make demo` and `make bench` pass on: make demo ARGS="--cards 4"
ARGS ?=

# How long the long tests are: steps of each seed, seconds of each race, cases of comparisons.
SOAK_STEPS ?= 200000
SOAK_SECONDS ?= 60
SOAK_CASES ?= 4000
# Other seeds each time; make soak SOAK_SEED=n repeats those of a run.
SOAK_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

.PHONY: help setup demo demo-lend bench test qemu c python report wheel release release-test release-again semver rtl rtl-long rtl-report soak msrv statistics proto clean

help:
	@echo "make demo        build, then run the main job: graph workloads on two cards"
	@echo "make demo-lend   lend a card from one network namespace to another, and take it back"
	@echo "make test        format, lints, documentation and every test, with a budget of time"
	@echo "make qemu        only the tests in virtual machines (docs/qemu.md)"
	@echo "make python      only the tests of the Python package (crates/python/README.md)"
	@echo "make c           only the tests of libfarside for C and C++ (docs/c.md)"
	@echo "make report      only the tests of report pages, in headless Chromium (docs/report.md)"
	@echo "make wheel       the wheel of the Python package, in target/wheels"
	@echo "make release     all files of a release, in target/release-files (docs/releasing.md)"
	@echo "make release-test  installs each of them in a clean Debian 12 and runs it (root)"
	@echo "make release-again  builds them again elsewhere, and compares"
	@echo "make semver      what changed for programs since the last release, or BASELINE=commit"
	@echo "make rtl         only the tests of the VHDL (docs/rtl/README.md)"
	@echo "make rtl-long    the same with all mistakes that they must find, and longer"
	@echo "make rtl-report  what readers get through the VHDL, and the thesis (docs/reproduction.md)"
	@echo "make bench       measure the promised numbers (docs/performance.md)"
	@echo "make soak        the long mode of the randomised tests and of the races"
	@echo "make setup       only check and install what the others need (FARSIDE_NO_INSTALL=1: only tell)"
	@echo "make msrv        check that all of it compiles with the oldest Rust that is promised"
	@echo "make statistics  write docs/statistics.md anew, from the names in the code"
	@echo "make proto       write the code of the lending protocol anew, from lend.proto"
	@echo "make clean       remove what was built"
	@echo
	@echo "ARGS=\"...\" goes to the command of demo and bench: make demo ARGS=\"--cards 4\""

setup:
	@scripts/setup.sh

demo: setup
	cargo build --release --locked -p farside-cli --bin farside
	@cargo run --release --locked --quiet -p farside-cli --bin farside -- demo $(ARGS)

demo-lend: setup
	cargo build --release --locked -p farside-cli --bin farside
	@scripts/lend/demo.sh target/release/farside

bench: setup
	cargo build --release --locked -p farside-cli --bin farside
	@cargo run --release --locked --quiet -p farside-cli --bin farside -- bench $(ARGS)

test:
	@scripts/setup.sh test
	@scripts/test.sh

qemu: setup
	@scripts/qemu/test.sh

c: setup
	@cargo test --locked -p farside-c
	@scripts/c/test.sh

report: setup
	@scripts/report/test.sh

python: setup
	@scripts/python/test.sh

wheel: setup
	@scripts/python/wheel.sh

release: setup
	@scripts/release/build.sh $(ARGS)

release-test: setup
	@scripts/release/test.sh

release-again: setup
	@scripts/release/again.sh

semver: setup
	@scripts/release/semver.sh $(BASELINE)

rtl: setup
	@scripts/rtl/test.sh

rtl-long: setup
	@scripts/rtl/test.sh --long

rtl-report: setup
	@scripts/rtl/report.sh

soak: SOAK_SEED := $(SOAK_SEED)
soak: setup
	@echo "seeds from $(SOAK_SEED) on: make soak SOAK_SEED=$(SOAK_SEED) repeats them"
	FARSIDE_SEED=$(SOAK_SEED).. FARSIDE_STEPS=$(SOAK_STEPS) FARSIDE_SECONDS=$(SOAK_SECONDS) \
		cargo test --locked --no-fail-fast -p farside-tests
	FARSIDE_SECONDS=$(SOAK_SECONDS) FUZZ_SECONDS=$(SOAK_SECONDS) PROPTEST_CASES=$(SOAK_CASES) \
		cargo test --locked --no-fail-fast -p farside-card
	@scripts/lend/faults.sh --all || [ $$? -eq 77 ]

# Of Cargo.toml; rustup fetches it where it is missing.
RUST_OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

msrv: setup
	rustup toolchain install $(RUST_OLDEST) --profile minimal
	CARGO_TARGET_DIR=target/msrv cargo +$(RUST_OLDEST) check --locked --workspace --all-targets

statistics: setup
	FARSIDE_WRITE_STATISTICS=1 cargo test --locked -p farside-sim --lib the_page_says_what_the_registry_says

proto: setup
	CARGO_TARGET_DIR=target/proto cargo run --locked --manifest-path crates/lend/codegen/Cargo.toml

clean:
	cargo clean
