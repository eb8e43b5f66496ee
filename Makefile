# `make help` lists the targets.

HOST   := $(shell rustc -vV | sed -n 's/^host: //p')
STATIC := CARGO_TARGET_$(shell echo $(HOST) | tr a-z- A-Z_)_RUSTFLAGS="-C target-feature=+crt-static"
TARGET := $(or $(CARGO_TARGET_DIR),target)/$(HOST)
BINARY := $(TARGET)/release/beamtune

.PHONY: help demo test build man screenshots check fmt clippy unit labs locks search errors truths tuned otp agent agent-check agent-test bench safety check-flags fuzz clean

help:            ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: build      ## diagnose a faulty node and a RabbitMQ under load, then diagnose and tune a demo web shop (10 minutes)
	scripts/install.sh demo
	scripts/demo.sh $(BINARY)

# The chroots are created while the compiler runs.
test:            ## install what the tests need, and run all tests
	scripts/install.sh test
	scripts/otp.sh & chroots=$$!; $(MAKE) --no-print-directory build-ci; built=$$?; wait $$chroots && exit $$built
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory agent-check
	scripts/test.sh $(TARGET)/ci/beamtune

build: $(if $(wildcard /usr/bin/cc),,install-build) ## build the static binary
	$(STATIC) cargo build --quiet --release --target $(HOST) -p beamtune

man: build       ## write manual pages to target/man and shell completions to target/completions
	$(BINARY) man target

screenshots: build ## create the pictures in docs/images from real runs (5 minutes)
	scripts/install.sh demo
	scripts/screenshots.sh $(BINARY)

.PHONY: build-ci
build-ci: $(if $(wildcard /usr/bin/cc),,install-build)
	$(STATIC) cargo build --quiet --profile ci --target $(HOST) -p beamtune

.PHONY: install-build
install-build:
	scripts/install.sh build

check: fmt clippy ## check formatting, lints, and the repository's rules
	cargo run --quiet -p xtask -- tidy

fmt:             ## fail if `cargo fmt` would change a file
	cargo fmt --all --check

clippy:          ## run clippy; warnings are errors
	cargo clippy --quiet --workspace --all-targets -- -D warnings

unit:            ## run the tests that need no Erlang
	cargo test --quiet --workspace --lib

labs: build      ## evaluate the diagnosis on all labs and real software, write docs/evaluation.md (2 hours, quiet host; LABS="--fresh --quick": half an hour)
	scripts/install.sh test
	scripts/otp.sh
	scripts/perftest.sh
	$(BINARY) lab evaluate $(or $(LABS),--fresh) -o target/lab-evaluation.jsonl --page docs/evaluation.md

locks: build     ## evaluate `beamtune locks`, write docs/evaluation.md (half an hour, quiet host)
	scripts/install.sh test
	scripts/otp.sh
	scripts/locks.sh $(BINARY)

search:          ## evaluate the search for settings on synthetic response surfaces, write docs/evaluation.md (3 minutes)
	scripts/search.sh

errors:          ## simulate the error rates of comparisons, write docs/evaluation.md (5 minutes)
	scripts/errors.sh

truths: build    ## run `beamtune compare` on settings with known effects, write docs/known-truths.md (1 hour, quiet host)
	scripts/truths.sh $(BINARY)

tuned: build     ## tune RabbitMQ and ejabberd, write docs/tuned.md (3 hours, quiet host)
	scripts/tuned.sh $(BINARY)

otp:             ## create chroots with OTP 23, 27 and 29, cached outside the repository
	scripts/install.sh test
	scripts/otp.sh

agent:           ## rebuild the injected agent (needs OTP 25)
	scripts/agent-build.sh

agent-check:     ## fail if the prebuilt agent differs from its source
	scripts/agent-build.sh --check

agent-test:      ## test the agent without Rust, on all releases (2 minutes; part of make test)
	scripts/install.sh test
	scripts/otp.sh
	agent/test/run.sh

bench: build     ## measure overhead and speed, write docs/benchmarks.md (quiet host; ONLY=4: only its fourth section)
	scripts/install.sh bench
	scripts/otp.sh
	scripts/peers.sh
	cargo run --quiet --release -p xtask -- bench $(BINARY) $(if $(ONLY),--only $(ONLY))

safety: build    ## measure the effect on a node, on all releases, write docs/safety.md (20 minutes)
	scripts/install.sh test
	scripts/otp.sh
	cargo run --quiet -p xtask -- safety $(BINARY) $(ONLY)

check-flags:     ## compare the flag data and the linter with VMs of all releases, write docs/vm-checks.md (5 minutes)
	scripts/install.sh test
	scripts/otp.sh
	cargo run --quiet -p xtask -- check-flags
	cargo run --quiet -p xtask -- check-lint

fuzz:            ## fuzz the readers of untrusted input, one minute of CPU time each (ONLY=frames SECONDS=1800: one target for longer)
	scripts/fuzz.sh $(if $(SECONDS),--seconds $(SECONDS)) $(ONLY)

clean:           ## remove build output and demo recordings
	cargo clean
	rm -rf demo-recordings
