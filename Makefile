# Run `make` alone to see what there is.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GOLANGCI_VERSION := 2.15.0
ACTIONLINT_VERSION := 1.7.12
FUZZTIME ?= 5s
FOR ?= 1h
SEED ?= 0
OPERATIONS ?= 100000

# The modules, which go.work joins, so that they are built with each other as they are here.
MODULES := $(shell sed -n 's/^\t\.\/\{0,1\}\([a-z/]*\)$$/.\/\1/p' go.work)
# The server that tests of MongoDB run against is built by itself, without tests.
MONGO := service/internal/testmongo/server
# So is Envoy's rate limit service, which the drop-in for it is compared with.
ENVOY := test/envoy/reference
# So are the packages, whose libraries would choose the versions of all others.
ALONE := $(MONGO) $(ENVOY) deploy
LINTER := $(CURDIR)/bin/golangci-lint

# each runs a command in every module of go.work, alone in those that it leaves out.
each = for module in $(MODULES); do (cd "$$module" && $(1)); done
alone = for module in $(ALONE); do (cd "$$module" && export GOWORK=off && $(1)); done

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# Without grpc's page of traces, which nobody serves, the linker leaves out 14 MB of methods that nobody calls.
TAGS := -tags grpcnotrace

# The dashboard is built when its sources have changed, and left out where there is no Node.js. Its scripts and style sheets
# are compressed, as the program has them.
DIST := service/internal/server/dashboard/dist
DASHBOARD := $(DIST)/index.html

.PHONY: web
web: $(DASHBOARD) ## build the dashboard

$(DASHBOARD): $(shell find service/web -type f -not -path '*/node_modules/*')
	@if command -v npm > /dev/null; then \
		rm -rf $(DIST)/assets $(DIST)/report.* $(DIST)/SOURCES $@ && (cd service/web && npm ci --no-audit --no-fund --loglevel=error > /dev/null && npm run --silent build > /dev/null) && \
		gzip -9n $(DIST)/assets/*.js $(DIST)/assets/*.css $(DIST)/report.* && \
		find service/web -type f -not -path '*/node_modules/*' | LC_ALL=C sort | xargs sha256sum > $(DIST)/SOURCES; \
	else echo "the dashboard is left out: npm is missing; install Node.js 20.19 or later" >&2; fi

.PHONY: screenshots
screenshots: web ## make pictures of all pages of the dashboard, in bin/screenshots
	@scripts/ensure chromium
	@mkdir -p bin/screenshots && go test ./test/browser -run TestAccessibility -screenshots "$(CURDIR)/bin/screenshots"

.PHONY: run
run: build ## start the service on 127.0.0.1:8080 with its state in memory
	@exec scripts/run bin/stint

.PHONY: build
build: web ## build bin/stint, with the dashboard
	@go build $(TAGS) -ldflags "-X main.commit=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" -o bin/stint ./service/cmd/stint

.PHONY: size
size: web ## build bin/stint.stripped, which may have 26.58 MB wherever it is built; a release, without C, is smaller
	@go build $(TAGS) -trimpath -ldflags "-s -w" -o bin/stint.stripped ./service/cmd/stint
	@bytes=$$(wc -c < bin/stint.stripped); echo "stint, stripped: $$bytes bytes"; test $$bytes -le 26580000

.PHONY: test
test: ## test the library and the service against a real Redis, installing what is missing
	@scripts/ensure curl redis-server node npm chromium nginx python3
	@$(MAKE) web
	@scripts/test quick

# The clients of Redis that run in Node.js.
NODE_CLIENTS := test/resp/node/node_modules

$(NODE_CLIENTS): test/resp/node/package-lock.json
	@cd test/resp/node && npm ci --no-audit --no-fund --loglevel=error > /dev/null && touch node_modules

.PHONY: test-all
test-all: test test-race test-mongo ## run all tests: the race detector, browsers, proxies, MongoDB, Valkey, faults, attacks, the release, packages
	@$(MAKE) test-rest

.PHONY: test-race
test-race: web ## run the tests in which things happen at the same time under the race detector
	@scripts/ensure curl redis-server nginx python3
	@scripts/test race

.PHONY: test-mongo
test-mongo: web ## run the tests of rules in MongoDB, and the example with them
	@scripts/ensure redis-server
	@scripts/test mongo

.PHONY: test-rest
test-rest: web ## run what test-all runs besides test, test-race and test-mongo
	@scripts/ensure curl redis-server node npm chromium nginx caddy php python3 python3-redis script prometheus amtool rpm systemd-analyze
	@$(MAKE) $(NODE_CLIENTS)
	@$(MAKE) lint-alone
	@scripts/valkey
	@scripts/test valkey
	@scripts/test whole

.PHONY: test-ordinary
test-ordinary: ## run test as a user who is not root, made for it; what test installs is installed before
	@scripts/ensure curl redis-server node npm chromium nginx python3
	@$(MAKE) web
	@scripts/ordinary $(MAKE) test

.PHONY: test-random
test-random: ## run the tests that draw by a seed again and again for FOR (1h), each time by another one, which it prints
	@scripts/ensure redis-server
	@scripts/test random $(FOR)

.PHONY: lint
lint: $(LINTER)-$(GOLANGCI_VERSION) ## check the formatting and run the linters
	@"$(LINTER)" fmt --diff
	@"$(LINTER)" run $(MODULES:%=%/...)
	@go run github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT_VERSION) -shellcheck= -pyflakes= .github/workflows/*

.PHONY: lint-alone
lint-alone: $(LINTER)-$(GOLANGCI_VERSION) ## run the linters in the modules that go.work leaves out
	@$(call alone,"$(LINTER)" run)

.PHONY: fmt
fmt: $(LINTER)-$(GOLANGCI_VERSION) ## format the code
	@"$(LINTER)" fmt

# The file's name carries the version, so that a new one is installed when the pin moves.
$(LINTER)-$(GOLANGCI_VERSION):
	@echo "installing golangci-lint $(GOLANGCI_VERSION); this takes some minutes"
	@GOBIN="$(CURDIR)/bin" go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION)"
	@touch "$@"

.PHONY: vet
vet: ## run go vet
	@$(call each,go vet ./...)
	@$(call alone,go vet ./...)

.PHONY: tidy
tidy: ## tidy go.mod and go.sum of every module
	@scripts/tidy

.PHONY: tidy-check
tidy-check: ## check that go.mod and go.sum of every module are tidy
	@scripts/tidy -diff
	@$(call alone,go mod tidy -diff)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (5s), led by coverage unless FUZZMODE=blind
	@scripts/ensure redis-server
	@$(call each,"$(CURDIR)/scripts/fuzz" $(FUZZTIME) $(FUZZMODE))

.PHONY: bench-smoke
bench-smoke: ## run one iteration of every benchmark
	@scripts/ensure redis-server
	@scripts/test smoke

.PHONY: gate
gate: FOR = 300ms
gate: ROUNDS = 7
gate: ## compare the speed with that of the commits in bench/BASELINE, in ROUNDS (7) of FOR (300ms) a row; ROWS chooses some
	@scripts/ensure redis-server
	@cd bench && go run ./cmd/gate -root .. -rounds $(ROUNDS) -for $(FOR) -rows '$(ROWS)'

.PHONY: bench
bench: ## measure against other limiters and print the ratios
	@$(MAKE) -C bench bench

.PHONY: figures
figures: ## measure everything and write it into the tables of figures of the pages (two hours); QUICK=1 tries that on copies
	@$(MAKE) -C bench figures

.PHONY: bench-redis
bench-redis: ## measure against other limiters in Redis and print the ratios
	@$(MAKE) -C bench bench-redis

.PHONY: bench-cluster
bench-cluster: ## measure limiters on clusters of 1, 2 and 3 primaries, per second of Redis's CPU
	@$(MAKE) -C bench bench-cluster

.PHONY: bench-envoy
bench-envoy: ## measure Envoy's rate limit service beside the reference service
	@$(MAKE) -C bench bench-envoy

.PHONY: bench-resp
bench-resp: ## measure the Redis protocol beside redis-server
	@$(MAKE) -C bench bench-resp

.PHONY: bench-network
bench-network: ## measure limiters behind 1, 5 and 50 ms of network delay
	@$(MAKE) -C bench bench-network

OUT ?= bin/release

.PHONY: release
release: ## build the program for all platforms, with checksums and a bill of materials, into OUT (bin/release)
	@scripts/release "$(OUT)"

.PHONY: push-image
push-image: ## publish the images of a release in OUT, with the rights of `docker login`
	@cd deploy && GOWORK=off go run ./pack push "$$(awk '$$1 == "github.com/stint-go/stint" { print $$2 }' ../go.work)" "$(abspath $(OUT))"

.PHONY: image
image: web ## make the context of deploy/Dockerfile, in bin/image
	@CGO_ENABLED=0 go build -trimpath $(TAGS) -ldflags "-s -w -X main.commit=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" -o bin/stint.image ./service/cmd/stint
	@scripts/image bin/stint.image bin/image && rm bin/stint.image

.PHONY: release-check
release-check: ## make a release in a folder of its own, and prove that its modules and its program are had from a proxy
	@scripts/ensure node npm
	@go test ./test/release -count 1 -timeout 30m -v

.PHONY: package-check
package-check: web ## make a release of this platform, and install, run, upgrade and remove its packages, image and chart; needs root
	@scripts/ensure redis-server nginx python3 prometheus rpm systemd-analyze
	@cd deploy && GOWORK=off go test ./... -count 1 -v

.PHONY: measure
measure: ## count the files, and the types in them, that three kinds of requests run through
	@scripts/ensure redis-server
	@go test ./test/measure -count 1 -v -rounds 10 | grep -E ' files +[0-9]+ types$$|FAIL'

.PHONY: chaos
chaos: ## make every fault of docs/reference/failures.md to real servers and print what was measured
	@scripts/ensure redis-server
	@table="$$(mktemp)" && trap 'rm -f "$$table"' EXIT && \
		go test ./test/chaos -run '^TestFaults$$' -count 1 -strict -table "$$table" || status=$$?; \
		cat "$$table"; exit $${status:-0}

.PHONY: attack
attack: FOR = 10s
attack: ## attack the service from 64 connections at full speed beside an innocent client, for FOR (10s) each
	@scripts/ensure redis-server
	@go test ./test/attack -run '^(TestAttack|TestBodies|TestEnvoy|TestHalfSentMessages|TestFrames|TestJSON|TestRedisProtocol|TestSimulations|TestAdministrators)$$' -count 1 -timeout 0 -v -for $(FOR) -store-timeout 100ms -strict

.PHONY: resp
resp: ## hold the clients of Redis to the service: those of Go, Node.js and Python, redis-cli and redis-benchmark
	@scripts/ensure redis-server node npm python3-redis script
	@$(MAKE) $(NODE_CLIENTS)
	@go test ./test/resp -count 1

.PHONY: answers
answers: ## compare 160,000 decisions of stint simulate with the answers of a service: at once, by rules that wait, and of holds
	@cd service && go test ./internal/server -run '^TestSimulationAnswersAsTheService$$' -count 1 -v -answers 160000

.PHONY: soak
soak: ## make one fault after another under a mixed load, for FOR (1h), drawn by SEED
	@scripts/ensure redis-server
	@go test ./test/chaos -run '^TestSoak$$' -count 1 -timeout 0 -v -soak $(FOR) -seed $(SEED)

.PHONY: holds-oracle
holds-oracle: OPERATIONS = 1000000
holds-oracle: ## hold both stores to a model of holds, and to the invariant of trees of floors, by OPERATIONS (1000000) random operations on each (20 minutes)
	@scripts/ensure redis-server
	@go test ./internal/oracle -count 1 -timeout 0 -v -operations $(OPERATIONS) -tree-operations $(OPERATIONS)

.PHONY: reserve-exact
reserve-exact: FOR = 60s
reserve-exact: ## hold from eight processes that are killed, on servers that are, for FOR (60s) each, and count what was charged
	@scripts/ensure redis-server
	@go test ./test/chaos -run '^TestReserveExact$$' -count 1 -timeout 0 -v -reserve-for $(FOR) -reserve-holders 8

.PHONY: reshard
reshard: ## move every slot of a cluster back and forth by redis-cli under 64 callers
	@scripts/ensure redis-server
	@go test ./redisstore/rueidis -run '^TestReshard$$' -count 1 -timeout 0 -v -reshard

.PHONY: reload
reload: ## put 1,000 rules in force every second under load, for FOR (1h), and check every decision
	@scripts/ensure redis-server
	@go test ./test/reload -run '^TestReload$$' -count 1 -timeout 0 -v -for $(FOR) -seed $(SEED) $(if $(filter redis,$(STORE)),-redis)

.PHONY: conformance
conformance: ## compare OPERATIONS (100,000) random operations of each algorithm and log encoding in Redis with the exact model, drawn by SEED
	@scripts/ensure redis-server
	@go test ./redisstore -run '^TestConformance$$' -count 1 -timeout 0 -v -operations $(OPERATIONS) -rapid.seed $(SEED)

.PHONY: envoy-diff
envoy-diff: N = 1000000
envoy-diff: ## compare N (1,000,000) random requests to `stint ratelimit` with Envoy's own service, drawn by SEED
	@scripts/ensure redis-server
	@ENVOY_DIFF_REQUESTS=$(N) ENVOY_DIFF_SEED=$(SEED) go test ./test/envoy -run '^TestDifferential$$' -count 1 -timeout 0 -v

.PHONY: exact-redis
exact-redis: ## hammer one Redis from eight processes and check every answer
	@$(MAKE) -C bench exact-redis

.PHONY: simulate-plots
simulate-plots: web ## draw the pictures of docs/simulate, which guides show
	@scripts/ensure chromium
	@go test ./test/browser -run '^TestPlot' -rewrite

.PHONY: ci
ci: ## run everything that has to pass
	@.ci/run
