package run

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/telemetry"
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
