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

// watchTLS says in a run's log, and by metrics where there is a registerer, how the certificates are that its files have, until the watch is closed.
func watchTLS(log *slog.Logger, r prometheus.Registerer, files ...*secure.TLS) (*secure.Watch, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if r == nil {
		return secure.NewWatch(log, nil, files...), nil
	}
	hook, err := telemetry.NewCertificates(r)
	if err != nil {
		return nil, err
	}
	return secure.NewWatch(log, hook, files...), nil
}

// tlsOf are the files of certificates of a job: of its shards, and of what it reads and writes.
func tlsOf(cfg *spec.Config) []*secure.TLS { return conf.Sections[secure.TLS](cfg) }
