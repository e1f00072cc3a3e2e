// Package telemetry turns what a run observes into Prometheus metrics and serves them over HTTP. It satisfies the hook
// interfaces of pipeline and ps by their shape and imports neither.
package telemetry

import (
	"slices"

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

var metrics = [...]Metric{
	{"monolith_source_examples_total", counter, "Examples or records a source returned.", []string{"source"}},
	{"monolith_source_lag_records", gauge, "Records of a split that are not trained yet, those on their way included. No series where it is not known: the source has no end to count to, or its broker does not answer.", []string{"source", "split"}},
	{"monolith_source_lost_records_total", counter, "Records that were gone before they were read, and passed over (source.kafka.on_gap: skip).", []string{"source"}},
	{"monolith_transform_dropped_examples_total", counter, "Bad rows left out, by the source they came from.", []string{"source", "reason"}},
	{"monolith_transform_feature_examples_total", counter, "Examples that were parsed, by feature: with a value of it, or absent.", []string{"feature", "value"}},
	{"monolith_transform_join_misses_total", counter, "Examples that had no line in a side table (parse.joins), by the name of its file.", []string{"table"}},
	{"monolith_transform_duration_seconds", histogram, "Time a stage or sink took for one batch.", []string{"transform"}},
	{"monolith_transform_examples_total", counter, "Examples a stage or sink was given.", []string{"transform"}},
	{"monolith_queue_batches", gauge, "Batches in a prefetch queue.", []string{"queue"}},
	{"monolith_queue_capacity_batches", gauge, "Batches a prefetch queue can hold.", []string{"queue"}},
	{"monolith_queue_wait_seconds", histogram, "Time one side of a queue waited: put when it is full, get when it is empty.", []string{"queue", "side"}},
	{"monolith_step_duration_seconds", histogram, "Time a phase of a training step took: lookup, step or push.", []string{"phase"}},
	{"monolith_train_loss", gauge, "Log loss of the last window of examples, before they were trained on. head is empty in a job without heads.", []string{"head"}},
	{"monolith_train_auc_ratio", gauge, "AUC of the last window of examples, before they were trained on.", []string{"head"}},
	{"monolith_train_score", gauge, "Other metrics of the last window of examples, before they were trained on: those of heads that predict values.", []string{"head", "metric"}},
	{"monolith_eval_score", gauge, "Metrics of the last evaluation while training.", []string{"head", "metric"}},
	{"monolith_push_staleness_steps", histogram, "Lookups a worker had done between a batch's own and its push.", nil},
	{"monolith_ps_request_duration_seconds", histogram, "Time a request to the parameter server took.", []string{"method", "code"}},
	{"monolith_ps_rows", gauge, "Embedding rows of a table on all shards.", []string{"table"}},
	{"monolith_snapshots_total", counter, "Snapshots tried, by result.", []string{"code"}},
	{"monolith_snapshot_duration_seconds", histogram, "Time a good snapshot took.", nil},
	{"monolith_snapshot_size_bytes", gauge, "Size of the last good snapshot.", nil},
	{"monolith_snapshot_stall_seconds", gauge, "Longest time a push waited for the last good snapshot.", nil},
	{"monolith_snapshot_last_success_timestamp_seconds", gauge, "When the last good snapshot was complete, in Unix time.", nil},
	{"monolith_build_info", gauge, "Always 1; the labels say what runs.", []string{"version", "revision", "go_version"}},
}

// Descriptions lists every metric of the program in the order of the documentation.
func Descriptions() []Metric { return slices.Clone(metrics[:]) }

// Durations from 10 µs to 40 s in steps of 4: a lookup in memory and a stalled broker both land in the middle.
func durationBuckets() []float64 { return prometheus.ExponentialBuckets(1e-5, 4, 12) }

// maker registers metrics by name with help and labels from the table; a name that is not there is a bug of ours and
// panics in the first test that runs.
type maker struct {
	reg  prometheus.Registerer
	errs []error
}

func (m *maker) find(name, kind string) Metric {
	i := slices.IndexFunc(metrics[:], func(d Metric) bool { return d.Name == name })
	if i < 0 || metrics[i].Type != kind {
		panic("telemetry: no " + kind + " " + name)
	}
	return metrics[i]
}

func (m *maker) register(c prometheus.Collector) {
	if err := m.reg.Register(c); err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(name string) *prometheus.CounterVec {
	d := m.find(name, counter)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
	m.register(c)
	return c
}

func (m *maker) gauge(name string) *prometheus.GaugeVec {
	d := m.find(name, gauge)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
	m.register(g)
	return g
}

func (m *maker) histogram(name string, buckets []float64) *prometheus.HistogramVec {
	d := m.find(name, histogram)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets}, d.Labels)
	m.register(h)
	return h
}
