// Package telemetry turns what a run observes into Prometheus metrics and serves them over HTTP. It satisfies the hook
// interfaces of pipeline and ps by their shape and imports neither.
package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metric describes one metric for documentation.
type Metric struct {
	// Name is the full name, Type "counter", "gauge" or "histogram", Help one sentence.
	Name, Type, Help string
	// Labels are small closed sets: never an id, a user or an error's text.
	Labels []string
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Descriptions lists every metric of the program in the order of the documentation.
func Descriptions() []Metric {
	m := &maker{reg: prometheus.NewRegistry()}
	newMetrics(m)
	newMemory(m, nil)
	newTraining(m)
	newSecrets(m)
	newBuild(m)
	return m.made
}

// Durations from 10 µs to 40 s in steps of 4: a lookup in memory and a stalled broker both land in the middle.
func durationBuckets() []float64 { return prometheus.ExponentialBuckets(1e-5, 4, 12) }

// maker registers metrics and keeps their descriptions.
type maker struct {
	reg  prometheus.Registerer
	made []Metric
	errs []error
}

func (m *maker) register(c prometheus.Collector, d Metric) {
	m.made = append(m.made, d)
	if err := m.reg.Register(c); err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.register(c, Metric{name, counter, help, labels})
	return c
}

func (m *maker) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.register(g, Metric{name, gauge, help, labels})
	return g
}

func (m *maker) gaugeFunc(now func() float64, name, help string) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, now), Metric{Name: name, Type: gauge, Help: help})
}

func (m *maker) histogram(buckets []float64, name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.register(h, Metric{name, histogram, help, labels})
	return h
}
