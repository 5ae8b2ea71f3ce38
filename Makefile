# What a fresh machine needs to type. Go and make suffice for all but the real
# Kafka (Java, Maven) and the benchmarks (Debian's PostgreSQL); as root on Debian
# those are installed when they are missing, elsewhere a test says what to type.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
COMPOSE := github.com/compose-spec/compose-go/v2/cmd@v2.16.2

# Only tests that start the built binary, servers, or both live below these;
# they run one package after another, and without the race detector, which
# sees nothing of another process.
OUTSIDE := e2e/(relay|kafkareal|pgmatrix|kill|bench|demo|docs|crash|chaos/run)
INSIDE = $(shell $(GO) list ./... | grep -Ev '/$(OUTSIDE)(/|$$)')

# The race detector needs a C compiler.
RACE = $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null 2>&1 && echo -race)

# Tests of other processes are never answered from Go's cache of results.
E2E = TAILER_E2E_BINARY='$(CURDIR)/bin/tailer' $(GO) test -count=1 -p 1 -parallel 4

.PHONY: help build test test-unit test-e2e test-kafka test-pg test-kill test-chaos test-fresh chaos bench lint demo soak clean

help: ## what there is (the default)
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):[^#]*## /\1\t/' | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

build: ## bin/tailer
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/tailer ./cmd/tailer

test: test-unit test-e2e ## unit tests, fuzz seeds, end to end on one Postgres and kfake

test-unit: build
	@[ -n "$(RACE)" ] || echo "no C compiler: without the race detector"
	TAILER_E2E_BINARY='$(CURDIR)/bin/tailer' $(GO) test $(RACE) -timeout 10m $(INSIDE)

test-e2e: build
	$(E2E) -timeout 15m ./e2e/relay ./e2e/demo ./e2e/docs

test-kafka: build ## end to end on a real Apache Kafka: Java and Maven
	$(E2E) -timeout 15m ./e2e/kafkareal ./e2e/docs/real

PG ?= 14 15 16 17 18
test-pg: build ## end to end on PostgreSQL 14 to 18; PG="14 18" for some of them
	@for version in $(PG); do \
		echo "PostgreSQL $$version"; \
		TAILER_PG=$$version $(E2E) -timeout 10m ./e2e/pgmatrix || exit 1; \
	done
	@echo "killed at each boundary of the pipeline, on 14 and 18"
	$(E2E) -timeout 10m ./e2e/crash

test-kill: build ## 200 rounds of kill -9 under load; ROUNDS=20 for fewer
	TAILER_KILL_ROUNDS=$(or $(ROUNDS),200) $(E2E) -timeout 30m ./e2e/kill

chaos: build ## everything breaks, by a seed; ROUNDS=20 or FOR=10m, SEED, FIRST, BROKER=fake|real
	TAILER_CHAOS_ROUNDS='$(ROUNDS)' TAILER_CHAOS_FOR='$(FOR)' TAILER_CHAOS_SEED='$(SEED)' TAILER_CHAOS_FIRST='$(FIRST)' \
	TAILER_CHAOS_BROKER='$(BROKER)' TAILER_CHAOS_MODE='$(MODE)' TAILER_CHAOS_LOGS='$(LOGS)' $(E2E) -v -timeout 0 ./e2e/chaos/run

# A schedule that is the same each time: what turns red is the change, not the
# draw. make chaos draws.
test-chaos: ## 5 minutes of it on kfake, 3 on a real Kafka; the last round of each is finished
	$(MAKE) chaos FOR=5m BROKER=fake SEED=$(or $(SEED),77)
	$(MAKE) chaos FOR=3m BROKER=real SEED=$(or $(SEED),5)

test-fresh: ## a clone in an empty home, as a user who may nothing: demo, README and tutorial
	.ci/fresh

bench: build ## speed: the hot paths, then a drain and latencies on real servers
	$(GO) test -run '^$$' -bench . -benchmem ./decoder ./schema ./sink ./checkpoint ./replication
	$(GO) run ./e2e/bench

lint: ## gofmt, vet (also for macOS), staticcheck, docker-compose.yml
	@files="$$(gofmt -l .)"; [ -z "$$files" ] || { echo "gofmt -w these:"; echo "$$files"; exit 1; }
	$(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(COMPOSE) docker-compose.yml >/dev/null

demo: ## events from a private Postgres to a consumer; Ctrl-C ends it, or FOR=30s
	@echo "building the demo (about two minutes the first time, then seconds)"
	@$(GO) build -o bin/demo ./e2e/demo
	@exec bin/demo $(if $(FOR),-for $(FOR))

soak: build ## the fault tests at their literal length, and 5,000 kills: hours
	TAILER_SOAK=1 $(E2E) -timeout 0 ./e2e/relay
	TAILER_KILL_ROUNDS=5000 $(E2E) -timeout 0 ./e2e/kill

clean: ## remove what was built; CACHE=1: also the servers that tests downloaded
	rm -rf bin
	$(if $(CACHE),rm -rf "$${TAILER_E2E_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/tailer-e2e}" /var/cache/tailer-e2e)
