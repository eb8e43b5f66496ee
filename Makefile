# The two commands of the README are `make demo` and `make test`; everything else is a step of them,
# or a tool for those who work on beamtune. `make help` lists all.

HOST   := $(shell rustc -vV | sed -n 's/^host: //p')
STATIC := CARGO_TARGET_$(shell echo $(HOST) | tr a-z- A-Z_)_RUSTFLAGS="-C target-feature=+crt-static"
TARGET := $(or $(CARGO_TARGET_DIR),target)/$(HOST)
BINARY := $(TARGET)/release/beamtune

.PHONY: help demo test build check fmt clippy unit labs locks search errors truths tuned otp agent agent-check agent-test bench safety check-flags fuzz clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: build      ## a sick lab node and a RabbitMQ under load, diagnosed; what a node's threads wait for; a shop, diagnosed and tuned (10 minutes)
	scripts/install.sh demo
	scripts/demo.sh $(BINARY)

# The chroots are fetched and unpacked while the compiler is at work.
test:            ## installs what tests need and runs all of them
	scripts/install.sh test
	scripts/otp.sh & chroots=$$!; $(MAKE) --no-print-directory build-ci; built=$$?; wait $$chroots && exit $$built
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory agent-check
	scripts/test.sh $(TARGET)/ci/beamtune

build: $(if $(wildcard /usr/bin/cc),,install-build) ## the static binary
	$(STATIC) cargo build --quiet --release --target $(HOST) -p beamtune

.PHONY: build-ci
build-ci: $(if $(wildcard /usr/bin/cc),,install-build)
	$(STATIC) cargo build --quiet --profile ci --target $(HOST) -p beamtune

.PHONY: install-build
install-build:
	scripts/install.sh build

check: fmt clippy ## formatting, lints, and the rules of the repository
	cargo run --quiet -p xtask -- tidy

fmt:             ## fails where `cargo fmt` would change something
	cargo fmt --all --check

clippy:          ## warnings are errors
	cargo clippy --quiet --workspace --all-targets -- -D warnings

unit:            ## the tests that need no Erlang
	cargo test --quiet --workspace --lib

labs: build      ## every lab, sick and cured, on all releases, and real software (two hours, on a quiet machine; LABS="--fresh --quick": half an hour); writes docs/evaluation.md
	scripts/install.sh test
	scripts/otp.sh
	scripts/perftest.sh
	$(BINARY) lab evaluate $(or $(LABS),--fresh) -o target/lab-evaluation.jsonl --page docs/evaluation.md

locks: build     ## asks nodes with and without contention whether threads wait (half an hour, on a quiet machine); writes docs/evaluation.md
	scripts/install.sh test
	scripts/otp.sh
	scripts/locks.sh $(BINARY)

search:          ## how good the search for settings is, on made-up surfaces (3 minutes); writes docs/evaluation.md
	scripts/search.sh

errors:          ## how often a comparison errs, simulated (5 minutes); writes docs/evaluation.md
	scripts/errors.sh

truths: build    ## asks compare what is known (an hour, on a quiet machine); writes docs/known-truths.md
	scripts/truths.sh $(BINARY)

tuned: build     ## tunes RabbitMQ and ejabberd (three hours, on a quiet machine); writes docs/tuned.md
	scripts/tuned.sh $(BINARY)

otp:             ## chroots with OTP 23, 27 and 29, cached outside the repository
	scripts/install.sh test
	scripts/otp.sh

agent:           ## builds the injected agent anew (needs OTP 25)
	scripts/agent-build.sh

agent-check:     ## fails where the prebuilt agent differs from its source
	scripts/agent-build.sh --check

agent-test:      ## tests the agent without Rust, on all releases (2 minutes; part of make test)
	scripts/install.sh test
	scripts/otp.sh
	agent/test/run.sh

bench: build     ## measures cost and speed, writes docs/benchmarks.md (ONLY=4: its fourth section alone)
	scripts/install.sh bench
	scripts/otp.sh
	scripts/peers.sh
	cargo run --quiet --release -p xtask -- bench $(BINARY) $(if $(ONLY),--only $(ONLY))

safety: build    ## what beamtune does to a node at most, on all releases (about 20 minutes); writes docs/safety.md
	scripts/install.sh test
	scripts/otp.sh
	cargo run --quiet -p xtask -- safety $(BINARY) $(ONLY)

check-flags:     ## holds the data of the crate flags and the linter against VMs of all releases (about 5 minutes); writes docs/vm-checks.md
	scripts/install.sh test
	scripts/otp.sh
	cargo run --quiet -p xtask -- check-flags
	cargo run --quiet -p xtask -- check-lint

fuzz:            ## looks for inputs that readers fall over, a minute of CPU time for each of them (ONLY=frames SECONDS=1800: longer, for one)
	scripts/fuzz.sh $(if $(SECONDS),--seconds $(SECONDS)) $(ONLY)

clean:           ## what the build left here
	cargo clean
	rm -rf demo-recordings
