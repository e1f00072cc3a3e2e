package telemetry

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics observes a run and keeps count of it. It is a hook of pipeline and of ps. All methods are
// safe for concurrent use and cost well under a microsecond; none is called for a single row, except RowDropped.
type Metrics struct {
	now    func() time.Time
	phases []string

	examples   *prometheus.CounterVec
	lag        *prometheus.GaugeVec
	dropped    *prometheus.CounterVec
	lost       *prometheus.CounterVec
	features   *prometheus.CounterVec
	misses     *prometheus.CounterVec
	transform  *prometheus.HistogramVec
	processed  *prometheus.CounterVec
	queue      *prometheus.GaugeVec
	capacity   *prometheus.GaugeVec
	wait       *prometheus.HistogramVec
	step       *prometheus.HistogramVec
	staleness  *prometheus.HistogramVec
	request    *prometheus.HistogramVec
	rows       *prometheus.GaugeVec
	snapshots  *prometheus.CounterVec
	snapTime   *prometheus.HistogramVec
	snapBytes  *prometheus.GaugeVec
	snapStall  *prometheus.GaugeVec
	snapLastOK *prometheus.GaugeVec
}

// New registers the metrics of one run with reg. phases are the names of the stages that a training step consists of. A
// registry takes one run only: a second is an error.
func New(reg prometheus.Registerer, phases ...string) (*Metrics, error) {
	m := &maker{reg: reg}
	h := &Metrics{
		now:        time.Now,
		phases:     phases,
		examples:   m.counter("monolith_source_examples_total"),
		lag:        m.gauge("monolith_source_lag_records"),
		dropped:    m.counter("monolith_transform_dropped_examples_total"),
		lost:       m.counter("monolith_source_lost_records_total"),
		features:   m.counter("monolith_transform_feature_examples_total"),
		misses:     m.counter("monolith_transform_join_misses_total"),
		transform:  m.histogram("monolith_transform_duration_seconds", durationBuckets()),
		processed:  m.counter("monolith_transform_examples_total"),
		queue:      m.gauge("monolith_queue_batches"),
		capacity:   m.gauge("monolith_queue_capacity_batches"),
		wait:       m.histogram("monolith_queue_wait_seconds", durationBuckets()),
		step:       m.histogram("monolith_step_duration_seconds", durationBuckets()),
		staleness:  m.histogram("monolith_push_staleness_steps", []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64}),
		request:    m.histogram("monolith_ps_request_duration_seconds", durationBuckets()),
		rows:       m.gauge("monolith_ps_rows"),
		snapshots:  m.counter("monolith_snapshots_total"),
		snapTime:   m.histogram("monolith_snapshot_duration_seconds", prometheus.ExponentialBuckets(0.01, 4, 9)),
		snapBytes:  m.gauge("monolith_snapshot_size_bytes"),
		snapStall:  m.gauge("monolith_snapshot_stall_seconds"),
		snapLastOK: m.gauge("monolith_snapshot_last_success_timestamp_seconds"),
	}
	return h, errors.Join(m.errs...)
}

// RowsRead counts what a source returned.
func (h *Metrics) RowsRead(source, _ string, rows int) {
	h.examples.WithLabelValues(source).Add(float64(rows))
}

// Lag sets a split's lag in records. Where nobody knows it (-1) there is no series: an old value would be a lie.
func (h *Metrics) Lag(source, split string, records int64) {
	if records < 0 {
		h.lag.DeleteLabelValues(source, split)
		return
	}
	h.lag.WithLabelValues(source, split).Set(float64(records))
}

// RecordsLost counts records that were passed over because they are gone.
func (h *Metrics) RecordsLost(source, _ string, from, to int64) {
	h.lost.WithLabelValues(source).Add(float64(to - from))
}

// RowDropped counts one bad row.
func (h *Metrics) RowDropped(source, reason string) { h.dropped.WithLabelValues(source, reason).Inc() }

// FeatureParsed counts the examples of a block that had a value of a feature, and those that had none.
func (h *Metrics) FeatureParsed(feature string, rows, filled int64) {
	if filled > 0 {
		h.features.WithLabelValues(feature, "present").Add(float64(filled))
	}
	if rows > filled {
		h.features.WithLabelValues(feature, "absent").Add(float64(rows - filled))
	}
}

// JoinMissed counts the examples that had no line in a side table.
func (h *Metrics) JoinMissed(table string, examples int64) {
	h.misses.WithLabelValues(table).Add(float64(examples))
}

// StageDone times a stage or sink. The stages of a training step are its phases too.
func (h *Metrics) StageDone(stage string, rows int, d time.Duration) {
	h.transform.WithLabelValues(stage).Observe(d.Seconds())
	h.processed.WithLabelValues(stage).Add(float64(rows))
	if slices.Contains(h.phases, stage) {
		h.step.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// QueueLen reports the fill of a queue.
func (h *Metrics) QueueLen(queue string, length, capacity int) {
	h.queue.WithLabelValues(queue).Set(float64(length))
	h.capacity.WithLabelValues(queue).Set(float64(capacity))
}

// QueueWait times a side that had to wait.
func (h *Metrics) QueueWait(queue, side string, d time.Duration) {
	h.wait.WithLabelValues(queue, side).Observe(d.Seconds())
}

// RequestDone times a request to the parameter server.
func (h *Metrics) RequestDone(method, code string, d time.Duration) {
	h.request.WithLabelValues(method, code).Observe(d.Seconds())
}

// TableRows reports the number of rows of a table on all shards.
func (h *Metrics) TableRows(table string, rows int64) {
	h.rows.WithLabelValues(table).Set(float64(rows))
}

// Staleness reports how many later lookups came before a push.
func (h *Metrics) Staleness(steps int64) { h.staleness.WithLabelValues().Observe(float64(steps)) }

// SnapshotDone is called after a snapshot; only one with code "ok" changes the times and sizes.
func (h *Metrics) SnapshotDone(code string, took time.Duration, bytes int64, longestStall time.Duration) {
	h.snapshots.WithLabelValues(code).Inc()
	if code != "ok" {
		return
	}
	h.snapTime.WithLabelValues().Observe(took.Seconds())
	h.snapBytes.WithLabelValues().Set(float64(bytes))
	h.snapStall.WithLabelValues().Set(longestStall.Seconds())
	h.snapLastOK.WithLabelValues().Set(float64(h.now().UnixMilli()) / 1e3)
}

// Training keeps the gauges of how well a run learns.
type Training struct {
	loss, auc, score, eval *prometheus.GaugeVec
}

// NewTraining registers the gauges with reg.
func NewTraining(reg prometheus.Registerer) (*Training, error) {
	m := &maker{reg: reg}
	t := &Training{
		loss: m.gauge("monolith_train_loss"), auc: m.gauge("monolith_train_auc_ratio"), score: m.gauge("monolith_train_score"), eval: m.gauge("monolith_eval_score"),
	}
	return t, errors.Join(m.errs...)
}

// Observe sets the gauge of a metric of a head while it trains; NaN leaves it as it is.
func (t *Training) Observe(head, metric string, v float64) {
	switch {
	case math.IsNaN(v):
	case metric == "log_loss":
		t.loss.WithLabelValues(head).Set(v)
	case metric == "auc":
		t.auc.WithLabelValues(head).Set(v)
	default:
		t.score.WithLabelValues(head, metric).Set(v)
	}
}

// Evaluated sets the gauge of a metric of a head on held-out examples; NaN leaves it as it is.
func (t *Training) Evaluated(head, metric string, v float64) {
	if !math.IsNaN(v) {
		t.eval.WithLabelValues(head, metric).Set(v)
	}
}

// Build is what runs.
type Build struct {
	Version, Revision, Go string
}

// RegisterBuild registers the build_info gauge.
func RegisterBuild(reg prometheus.Registerer, b Build) error {
	m := &maker{reg: reg}
	m.gauge("monolith_build_info").WithLabelValues(b.Version, b.Revision, b.Go).Set(1)
	return errors.Join(m.errs...)
}
