package run

import (
	"cmp"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
)

// newTelemetry makes the metrics of a run; nil without a registerer.
func newTelemetry(r prometheus.Registerer) (*telemetry.Metrics, error) {
	if r == nil {
		return nil, nil
	}
	return telemetry.New(r, wiring.NodeLookup, wiring.NodeStep, wiring.NodePush)
}

// runHooks are what is notified of a run: what watches it, and the metrics, which may be nil.
func runHooks(watch any, m *telemetry.Metrics) *pipeline.Hooks {
	if m == nil {
		return pipeline.NewHooks(watch)
	}
	return pipeline.NewHooks(watch, m)
}

func psHooks(m *telemetry.Metrics) *ps.Hooks {
	if m == nil {
		return nil
	}
	return ps.NewHooks(m)
}

// watchSecrets says in a run's log, and by metrics where there is a registerer, how the certificates and tokens are that its files have, until the watch is closed.
func watchSecrets(log *slog.Logger, r prometheus.Registerer, files []*secure.TLS, tokens []secure.TokenFile) (*secure.Watch, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if r == nil {
		return secure.NewWatch(log, nil, files, tokens), nil
	}
	hook, err := telemetry.NewSecrets(r)
	if err != nil {
		return nil, err
	}
	return secure.NewWatch(log, hook, files, tokens), nil
}

// tlsOf are the files of certificates of a job: of its shards, and of what it reads and writes.
func tlsOf(cfg *spec.Config) []*secure.TLS { return conf.Sections[secure.TLS](cfg) }

// tokensOf are the files of tokens of a job's shards.
func tokensOf(p *spec.PS) (out []secure.TokenFile) {
	for _, t := range []spec.Secret{p.Token, p.Allow.Read.Token, p.Allow.Train.Token, p.Allow.Coordinate.Token} {
		out = append(out, secure.TokenFile{File: t.File, Token: t.Resolve})
	}
	return out
}

// tokenFiles are files that each hold a token; empty names are none.
func tokenFiles(names ...string) (out []secure.TokenFile) {
	for _, name := range names {
		out = append(out, secure.TokenFile{File: name, Token: tokenOf(name)})
	}
	return out
}
