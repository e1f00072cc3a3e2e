package serving

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/telemetry"
)

// Metrics are what a server counts, under TensorFlow Serving's names where it has them. Methods may overlap; a nil one counts nothing.
type Metrics struct {
	verified                    *prometheus.CounterVec
	requests, examples, batches *prometheus.CounterVec
	loads, kept                 *prometheus.CounterVec
	latency                     *prometheus.HistogramVec
	rows, lookups, lookupIDs    *prometheus.CounterVec
	calls                       *prometheus.HistogramVec
	waiting, version            *prometheus.GaugeVec
	taken                       *prometheus.GaugeVec
	pushes, pushRows            *prometheus.CounterVec
	rowsKept                    *prometheus.GaugeVec
	ages                        *ages
}

// ages tells how old the parameters are of models whose parameters change, when it is asked.
type ages struct {
	desc   *prometheus.Desc
	models atomic.Pointer[Models]
}

// Describe implements [prometheus.Collector].
func (a *ages) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

// cacheBytes is what the cache of rows takes; 0 without one.
func (a *ages) cacheBytes() float64 {
	if m := a.models.Load(); m != nil && m.o.Rows != nil {
		return float64(m.o.Rows.CacheBytes())
	}
	return 0
}

// Collect implements [prometheus.Collector].
func (a *ages) Collect(to chan<- prometheus.Metric) {
	models := a.models.Load()
	if models == nil {
		return
	}
	for _, name := range models.Names() {
		list, err := models.Status(name, Which{})
		if err != nil { // it has gone
			continue
		}
		for _, v := range list {
			if v.State == Available && !v.AsOf.IsZero() {
				to <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, time.Since(v.AsOf).Seconds(), name)
			}
		}
	}
}

// Watch makes the metrics tell how old the parameters of models are, and what is kept of their rows.
func (m *Metrics) Watch(models *Models) { m.ages.models.Store(models) }

// Descriptions lists the metrics in the order of the documentation.
func Descriptions() []telemetry.Metric {
	var list []telemetry.Metric
	newMetrics(func(d telemetry.Metric, _ prometheus.Collector) { list = append(list, d) })
	return list
}

// NewMetrics registers the metrics with reg. A registry takes one server.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	var errs []error
	m := newMetrics(func(_ telemetry.Metric, c prometheus.Collector) { errs = append(errs, reg.Register(c)) })
	return m, errors.Join(errs...)
}

// newMetrics is the list of the metrics, each of which register gets.
func newMetrics(register func(telemetry.Metric, prometheus.Collector)) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		register(telemetry.Metric{Name: name, Type: "counter", Help: help, Labels: labels}, c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		c := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		register(telemetry.Metric{Name: name, Type: "gauge", Help: help, Labels: labels}, c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		c := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		register(telemetry.Metric{Name: name, Type: "histogram", Help: help, Labels: labels}, c)
		return c
	}
	const name, help = "monolith_serving_freshness_seconds", "How long ago everything was applied that is read of a running job; of its snapshot before its shards have answered."
	a := &ages{desc: prometheus.NewDesc(name, help, []string{"model_name"}, nil)}
	out := &Metrics{
		ages:      a,
		requests:  counter(":tensorflow:serving:request_count", "Requests for predictions, by the gRPC code of their answer.", "model_name", "status"),
		examples:  counter(":tensorflow:serving:request_example_count_total", "Examples that were predicted.", "model_name"),
		batches:   counter("monolith_serving_batches_total", "Batches that were computed, each of one request or of several.", "model_name"),
		latency:   histogram(":tensorflow:serving:request_latency", "Time from a whole request to its answer, in microseconds.", prometheus.ExponentialBuckets(10, 1.8, 33), "API", "entrypoint", "model_name"),
		verified:  counter("monolith_serving_verified_total", "Versions whose files were all read while they served, by what was found: whole or damaged.", "model_name", "files"),
		loads:     counter("monolith_serving_loads_total", "Versions that were opened, by result.", "code", "model_name"),
		rows:      counter("monolith_serving_rows_total", "Distinct rows of batches of a server with row shards, by where they were: cache or shard.", "model_name", "from"),
		calls:     histogram("monolith_serving_row_call_seconds", "Time of a call to a row shard, by the gRPC code of its answer.", prometheus.ExponentialBuckets(20e-6, 2, 20), "shard", "status"),
		lookups:   counter("monolith_serving_lookups_total", "Lookups that a row shard was asked for, by the gRPC code of their answer.", "model_name", "status"),
		lookupIDs: counter("monolith_serving_lookup_ids_total", "Ids of these lookups.", "model_name"),
		pushes:    counter("monolith_serving_pushes_total", "Pushes of rows, by the gRPC code of their answer.", "model_name", "status"),
		pushRows:  counter("monolith_serving_pushed_rows_total", "Rows that were pushed and assigned.", "model_name"),
		rowsKept:  gauge("monolith_serving_pushed_rows", "Rows that were pushed and are not those of the export, which are in memory.", "model_name"),
		kept:      counter("monolith_serving_logged_requests_total", "Requests that the request log was to keep, by whether it did.", "result"),
		waiting:   gauge("monolith_serving_waiting_requests", "Requests that wait for a thread."),
		version:   gauge("monolith_serving_version", "Number of the version that predicted last.", "model_name"),
		taken:     gauge("monolith_serving_snapshot_timestamp_seconds", "When the snapshot of that version was taken, in Unix time.", "model_name"),
	}
	register(telemetry.Metric{Name: name, Type: "gauge", Help: help, Labels: []string{"model_name"}}, a)
	const cache, cacheHelp = "monolith_serving_row_cache_bytes", "Memory of the rows that were read of row shards and are kept."
	register(telemetry.Metric{Name: cache, Type: "gauge", Help: cacheHelp}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: cache, Help: cacheHelp}, a.cacheBytes))
	return out
}

// Loaded counts a version that was opened, or was not: it is [ModelsOptions].Loaded.
func (m *Metrics) Loaded(model string, _ time.Duration, err error) {
	code := "ok"
	if err != nil {
		code = "error"
	}
	m.loads.WithLabelValues(code, model).Inc()
}

// Verified counts a version whose files were verified: it is [ModelsOptions].Verified.
func (m *Metrics) Verified(model string, whole bool) {
	files := "whole"
	if !whole {
		files = "damaged"
	}
	m.verified.WithLabelValues(model, files).Inc()
}

// done counts a request. model is one that is served: names of others are not kept.
func (m *Metrics) done(model, api, entry string, took time.Duration, code codes.Code) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(model, code.String()).Inc()
	m.latency.WithLabelValues(api, entry, model).Observe(float64(took.Microseconds()))
}

// predicted counts the examples that a version has predicted.
func (m *Metrics) predicted(model string, number int64, taken time.Time, examples int) {
	if m == nil {
		return
	}
	m.examples.WithLabelValues(model).Add(float64(examples))
	m.version.WithLabelValues(model).Set(float64(number))
	m.taken.WithLabelValues(model).Set(float64(taken.UnixMilli()) / 1e3)
}

// Looked implements [rows.Observer].
func (m *Metrics) Looked(model string, cached, asked int) {
	m.rows.WithLabelValues(model, "cache").Add(float64(cached))
	m.rows.WithLabelValues(model, "shard").Add(float64(asked))
}

// Called implements [rows.Observer].
func (m *Metrics) Called(shard int, took time.Duration, code codes.Code) {
	m.calls.WithLabelValues(strconv.Itoa(shard), code.String()).Observe(took.Seconds())
}

// lookedUp counts a lookup of another server.
func (m *Metrics) lookedUp(model string, ids int, code codes.Code) {
	if m == nil {
		return
	}
	m.lookups.WithLabelValues(model, code.String()).Inc()
	m.lookupIDs.WithLabelValues(model).Add(float64(ids))
}

// pushed counts a push of so many rows that were assigned, after which so many are in memory.
func (m *Metrics) pushed(model string, rows int, kept int64, code codes.Code) {
	if m == nil {
		return
	}
	m.pushes.WithLabelValues(model, code.String()).Inc()
	m.pushRows.WithLabelValues(model).Add(float64(rows))
	m.rowsKept.WithLabelValues(model).Set(float64(kept))
}

// batch counts a batch that is computed.
func (m *Metrics) batch(model string) {
	if m != nil {
		m.batches.WithLabelValues(model).Inc()
	}
}

// logged counts requests that were to be kept.
func (m *Metrics) logged(kept bool, requests int) {
	if m != nil {
		m.kept.WithLabelValues(map[bool]string{true: "kept", false: "dropped"}[kept]).Add(float64(requests))
	}
}

func (m *Metrics) wait(n float64) {
	if m != nil {
		m.waiting.WithLabelValues().Add(n)
	}
}
