# One front end for everything; `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO        := go
TESTFLAGS :=
BENCH     := .
FUZZTIME  := 1m
MUTANTS   :=
LINT      := $(GO) tool -modfile=tools/go.mod golangci-lint
VERSION   :=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: build
build: ## build bin/monolith, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags '-s -w -X main.version=$(VERSION)' -o bin/monolith ./cmd/monolith

.PHONY: cross
cross: ## compile for the other systems that README.md names
	@set -e; for target in linux/arm64 darwin/arm64; do echo "cross: $$target"; CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build -trimpath -o /dev/null ./cmd/monolith; done

.PHONY: test
test: ## run all tests; MONOLITH_DATA and MONOLITH_REQUIRE as in CONTRIBUTING.md
	$(GO) test -timeout 30m $(TESTFLAGS) ./...

.PHONY: race
race: ## run the short tests under the race detector
	$(GO) test -race -short -skip '^TestRealData' -timeout 45m $(TESTFLAGS) ./...

.PHONY: real
real: ## train and evaluate on the real data sets below MONOLITH_DATA
	$(GO) test -count=1 -timeout 60m -v -run '^TestRealData' $(TESTFLAGS) ./...

.PHONY: quality
quality: ## train every model on Frappe and MovieLens-1M and print docs/quality.md's tables; MONOLITH_DATA as in CONTRIBUTING.md; half an hour or more
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && { $(GO) run ./examples/frappe -dir "$$d/frappe"; f=$$?; $(GO) run ./examples/movielens -dir "$$d/movielens" && exit $$f; }

.PHONY: lint
lint: ## run the pinned golangci-lint, formatting included
	$(LINT) run ./...

.PHONY: fmt
fmt: ## format everything
	$(LINT) fmt ./...

.PHONY: generate
generate: ## write generated files again
	$(GO) generate ./...

.PHONY: proto
proto: ## write the Go code of proto/ again; needs protoc
	@command -v protoc > /dev/null || { echo "proto: protoc is not installed (Debian: protobuf-compiler)" >&2; exit 1; }
	$(GO) build -modfile=tools/go.mod -o bin/proto/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	cd proto && PATH="$(CURDIR)/bin/proto:$$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	  --go-grpc_out=. --go-grpc_opt=paths=source_relative,require_unimplemented_servers=false $$(find . -name '*.proto')

.PHONY: bench
bench: ## run benchmarks; BENCH=regexp chooses
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME each
	@set -euo pipefail; \
	$(GO) list ./... | while read -r pkg; do \
	  $(GO) test -list '^Fuzz' "$$pkg" | { grep '^Fuzz' || true; } | while read -r target; do \
	    echo "== $$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$pkg" < /dev/null; \
	  done; \
	done

.PHONY: mutants
mutants: ## break the project on purpose, one place at a time; MUTANTS=regexp chooses
	$(GO) run ./internal/mutants -run '$(MUTANTS)'

.PHONY: flink-cluster
flink-cluster: ## train on a Flink session cluster whose processes are killed; needs java and mvn, minutes and 4 GiB
	MONOLITH_REQUIRE=$(MONOLITH_REQUIRE),flink,flink-cluster $(GO) test -count=1 -timeout 30m -v -run '^TestFlinkCluster$$' ./cmd/monolith

.PHONY: memory
memory: ## train on 1 and on 8 GB of Parquet, switch 10,000 times between versions that are asked 360,000 times, and compare the memory; needs 9 GB of disk, minutes
	MONOLITH_REQUIRE=$(MONOLITH_REQUIRE),memory $(GO) test -count=1 -timeout 60m -v -run '^TestMemoryIsFlat$$' ./cmd/monolith ./serving

.PHONY: soak
soak: ## train a cluster of processes that are killed, stopped and started again for ten minutes
	MONOLITH_REQUIRE=$(MONOLITH_REQUIRE),soak $(GO) test -count=1 -timeout 30m -v -run '^TestSoak$$' ./cmd/monolith

.PHONY: nightly
nightly: fuzz mutants flink-cluster memory soak ## what takes too long for each change

.PHONY: cover
cover: ## write cover.html
	$(GO) test -short -coverprofile=cover.out -coverpkg=./... ./...
	$(GO) tool cover -html=cover.out -o cover.html
	@$(GO) tool cover -func=cover.out | tail -1

.PHONY: image
image: ## build the container image monolith:latest
	docker build --build-arg VERSION=$(VERSION) -t monolith:latest .

.PHONY: clean
clean: ## remove what was built
	rm -rf bin cover.out cover.html
