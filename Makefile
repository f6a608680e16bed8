# Shell logic of more than two lines is in scripts/. Versions of tools are in internal/tools/go.mod.

SERVICES := go run ./internal/testenv/cmd/services
PKG ?= ./...

.PHONY: help demo test race fuzz bench lint arch tidy services local-up local-down local-kill local-start chaos

help: ## Say what there is to make (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Run the inventory example with nothing installed: watch redelivered orders be applied once
	go run ./examples/inventory demo

test: ## Run all tests, or those of PKG=./consumer, against each real service that is found or can be started; say what was skipped
	$(SERVICES) run go test -race -shuffle=on -count=1 -timeout 20m $(TESTFLAGS) $(PKG)

race: ## Run the tests that need no service (all, or PKG=./consumer), repeatedly, in random order, with the race detector
	go test -race -shuffle=on -short -count=2 -timeout 20m $(TESTFLAGS) $(PKG)

fuzz: ## Run each fuzz test for FUZZTIME (10s)
	scripts/fuzz.sh $(or $(FUZZTIME),10s)

bench: ## Measure idemq against its alternatives on the same services in one run; prints ratios
	$(SERVICES) run go test -run '^$$' -bench . -benchtime 1s -count 3 ./bench | go run ./bench/ratios

lint: ## go vet, staticcheck, gofumpt
	scripts/lint.sh

arch: ## Check who imports whom
	go test -count=1 ./internal/arch

tidy: ## Tidy go.mod in every module
	go mod tidy
	go -C internal/tools mod tidy

services: ## Install or fetch the real services that can be had (as root on Debian), and start each once
	scripts/services.sh

local-up: ## Start Redis, PostgreSQL, MariaDB, Kafka and RocketMQ on loopback to try the example on; writes .local/env
	$(SERVICES) up

local-down: ## Stop them and remove their data
	$(SERVICES) down

local-kill: ## Kill one of them: make local-kill SERVICE=redis (without SERVICE: say which there are)
	$(SERVICES) kill $(SERVICE)

local-start: ## Bring it back: make local-start SERVICE=redis
	$(SERVICES) start $(SERVICE)

chaos: ## After local-up: kill consumers and Redis under 20,000 orders on each database and mode, and check (about 7 minutes)
	scripts/chaos.sh
