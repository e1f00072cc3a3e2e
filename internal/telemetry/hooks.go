package telemetry

import (
	"errors"
	"math"
	"slices"
	"strconv"
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
	cut        *prometheus.CounterVec
	misses     *prometheus.CounterVec
	transform  *prometheus.HistogramVec
	processed  *prometheus.CounterVec
	queue      *prometheus.GaugeVec
	capacity   *prometheus.GaugeVec
	wait       *prometheus.HistogramVec
	step       *prometheus.HistogramVec
	staleness  *prometheus.HistogramVec
	outRows    *prometheus.CounterVec
	outBytes   *prometheus.CounterVec
	outStores  *prometheus.CounterVec
	outLag     *prometheus.GaugeVec
	request    *prometheus.HistogramVec
	rows       *prometheus.GaugeVec
	removed    *prometheus.CounterVec
	tableBytes *prometheus.GaugeVec
	term       *prometheus.GaugeVec
	answers    *prometheus.GaugeVec
	synced     *prometheus.GaugeVec
	standbyLag *prometheus.GaugeVec
	snapshots  *prometheus.CounterVec
	snapTime   *prometheus.HistogramVec
	snapBytes  *prometheus.GaugeVec
	snapStall  *prometheus.GaugeVec
	snapLastOK *prometheus.GaugeVec
	uploads    *prometheus.CounterVec
	uploadSize *prometheus.CounterVec
	uploadTime *prometheus.HistogramVec
	uploadedID *prometheus.GaugeVec
	uploadedAt *prometheus.GaugeVec
}

// New registers the metrics of one run with reg. phases are the names of the stages that a training step consists of. A
// registry takes one run only: a second is an error.
func New(reg prometheus.Registerer, phases ...string) (*Metrics, error) {
	m := &maker{reg: reg}
	h := newMetrics(m)
	h.phases = phases
	return h, errors.Join(m.errs...)
}

// newMetrics is the list of the metrics of a run.
func newMetrics(m *maker) *Metrics {
	return &Metrics{
		now: time.Now,

		examples: m.counter("monolith_source_examples_total",
			"Examples or records a source returned.", "source"),
		lag: m.gauge("monolith_source_lag_records",
			"Records of a split that are not trained yet, those on their way included. Under read_committed, those behind an open transaction do not count. No series where it is not known: the source has no end to count to, or its broker does not answer.", "source", "split"),
		dropped: m.counter("monolith_transform_dropped_examples_total",
			"Bad rows left out, by the source they came from.", "source", "reason"),
		lost: m.counter("monolith_source_lost_records_total",
			"Records that were gone before they were read, and passed over (source.kafka.on_gap: skip).", "source"),
		features: m.counter("monolith_transform_feature_examples_total",
			"Examples that were parsed, by feature: with a value of it, or absent.", "feature", "value"),
		cut: m.counter("monolith_transform_cut_rows_total", "Examples in which a list had more values than the feature's max, which were cut.", "feature"),
		misses: m.counter("monolith_transform_join_misses_total",
			"Examples that had no line in a side table (parse.joins), by the name of its file.", "table"),
		transform: m.histogram(durationBuckets(), "monolith_transform_duration_seconds",
			"Time a stage or sink took for one batch.", "transform"),
		processed: m.counter("monolith_transform_examples_total",
			"Examples a stage or sink was given.", "transform"),
		queue: m.gauge("monolith_queue_batches",
			"Batches in a prefetch queue.", "queue"),
		capacity: m.gauge("monolith_queue_capacity_batches",
			"Batches a prefetch queue can hold.", "queue"),
		wait: m.histogram(durationBuckets(), "monolith_queue_wait_seconds",
			"Time one side of a queue waited: put when it is full, get when it is empty.", "queue", "side"),
		step: m.histogram(durationBuckets(), "monolith_step_duration_seconds",
			"Time a phase of a training step took: lookup, step or push.", "phase"),
		staleness: m.histogram([]float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64}, "monolith_push_staleness_steps",
			"Updates of other workers that were applied between the reading of the parameters that a batch's gradients were computed with and its push: those that they lack."),
		outRows: m.counter("monolith_output_rows_total",
			"Rows an output of the job has stored, so that its readers see them.", "output"),
		outBytes: m.counter("monolith_output_bytes_total",
			"Bytes of what an output has stored: of its files, or of the keys and values of its records.", "output"),
		outStores: m.counter("monolith_output_stores_total",
			"Files or transactions of an output, by result; after a failure the run ends, or the output is opened anew.", "output", "code"),
		outLag: m.gauge("monolith_output_lag_rows",
			"Rows that are trained or on their way to an output, and that it has not stored yet.", "output"),
		request: m.histogram(durationBuckets(), "monolith_ps_request_duration_seconds",
			"Time a request to the parameter server took.", "method", "code"),
		rows: m.gauge("monolith_ps_rows",
			"Embedding rows of a table on all shards.", "table"),
		removed: m.counter("monolith_ps_rows_removed_total",
			"Rows of a table on all shards that went by the retention: expired, or evicted for others.", "table", "cause"),
		tableBytes: m.gauge("monolith_ps_table_bytes",
			"Memory that a table takes on a shard: rows with their optimizers' state, index, and what counts ids without a row.", "shard", "table"),
		term: m.gauge("monolith_ps_term",
			"How often the processes of a shard with a standby have taken over from each other: even, the first one is in charge, odd, the standby. At shard 0, of shard 0 itself at its witness.", "shard"),
		answers: m.gauge("monolith_ps_in_charge",
			"1 while the process that is in charge of a shard with a standby answers, otherwise 0. At shard 0, of shard 0 itself at its witness.", "shard"),
		synced: m.gauge("monolith_ps_standby_synced",
			"1 while the standby of a shard has all that was acknowledged, so that it may take over, otherwise 0. At shard 0, of shard 0 itself at its witness.", "shard"),
		standbyLag: m.gauge("monolith_ps_standby_lag_records",
			"Records of the log that the standby of a shard has not received. No series while no standby is connected. At shard 0, of shard 0 itself at its witness.", "shard"),
		snapshots: m.counter("monolith_snapshots_total",
			"Snapshots tried, by result.", "code"),
		snapTime: m.histogram(prometheus.ExponentialBuckets(0.01, 4, 9), "monolith_snapshot_duration_seconds",
			"Time a good snapshot took."),
		snapBytes: m.gauge("monolith_snapshot_size_bytes",
			"Size of the last good snapshot."),
		snapStall: m.gauge("monolith_snapshot_stall_seconds",
			"Longest time a push waited for the last good snapshot."),
		snapLastOK: m.gauge("monolith_snapshot_last_success_timestamp_seconds",
			"When the last good snapshot was complete, in Unix time."),
		uploads: m.counter("monolith_snapshot_uploads_total",
			"Snapshots copied to snapshot.upload, by result; what fails is tried again.", "code"),
		uploadSize: m.counter("monolith_snapshot_upload_bytes_total",
			"Bytes of snapshots copied to snapshot.upload, those of uploads that failed included."),
		uploadTime: m.histogram(prometheus.ExponentialBuckets(0.1, 4, 9), "monolith_snapshot_upload_duration_seconds",
			"Time a good upload of a snapshot took."),
		uploadedID: m.gauge("monolith_snapshot_uploaded_number",
			"Number of the newest snapshot that is whole at snapshot.upload."),
		uploadedAt: m.gauge("monolith_snapshot_uploaded_timestamp_seconds",
			"When the newest snapshot at snapshot.upload was taken, in Unix time: what came later is lost with the machine."),
	}
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

// RowDropped counts bad rows.
func (h *Metrics) RowDropped(source, reason string, rows int64) {
	h.dropped.WithLabelValues(source, reason).Add(float64(rows))
}

// FeatureParsed counts the examples of a block that had a value of a feature, and those that had none.
// Cut are those that had more values than the feature's max.
func (h *Metrics) FeatureParsed(feature string, rows, filled, cut int64) {
	if cut > 0 {
		h.cut.WithLabelValues(feature).Add(float64(cut))
	}
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

// OutputStored counts files or transactions of an output that became visible, with what is in them.
func (h *Metrics) OutputStored(output string, stores, rows, bytes int64) {
	h.outStores.WithLabelValues(output, "ok").Add(float64(stores))
	h.outRows.WithLabelValues(output).Add(float64(rows))
	h.outBytes.WithLabelValues(output).Add(float64(bytes))
}

// OutputFailed counts a file or transaction that failed.
func (h *Metrics) OutputFailed(output, code string) { h.outStores.WithLabelValues(output, code).Inc() }

// OutputLag tells how many rows an output has not stored yet.
func (h *Metrics) OutputLag(output string, rows int64) {
	h.outLag.WithLabelValues(output).Set(float64(rows))
}

// RequestDone times a request to the parameter server.
func (h *Metrics) RequestDone(method, code string, d time.Duration) {
	h.request.WithLabelValues(method, code).Observe(d.Seconds())
}

// TableRows reports the number of rows of a table on all shards.
func (h *Metrics) TableRows(table string, rows int64) {
	h.rows.WithLabelValues(table).Set(float64(rows))
}

// RowsRemoved reports rows that went by the retention.
func (h *Metrics) RowsRemoved(table, cause string, rows int64) {
	h.removed.WithLabelValues(table, cause).Add(float64(rows))
}

// TableBytes reports the memory that a table takes on a shard; negative ends its series.
func (h *Metrics) TableBytes(shard int, table string, bytes int64) {
	label := strconv.Itoa(shard)
	if bytes < 0 {
		h.tableBytes.DeleteLabelValues(label, table)
		return
	}
	h.tableBytes.WithLabelValues(label, table).Set(float64(bytes))
}

// Staleness reports how many updates of others a push lacked.
func (h *Metrics) Staleness(steps int64) { h.staleness.WithLabelValues().Observe(float64(steps)) }

// Standby tells how a shard with a standby is.
func (h *Metrics) Standby(shard int, term uint64, answers, synced bool, lag int64) {
	label, one := strconv.Itoa(shard), map[bool]float64{true: 1}
	h.term.WithLabelValues(label).Set(float64(term))
	h.answers.WithLabelValues(label).Set(one[answers])
	h.synced.WithLabelValues(label).Set(one[answers && synced])
	if lag < 0 {
		h.standbyLag.DeleteLabelValues(label)
		return
	}
	h.standbyLag.WithLabelValues(label).Set(float64(lag))
}

// StandbyGone ends the series of a shard's pair.
func (h *Metrics) StandbyGone(shard int) {
	for _, g := range []*prometheus.GaugeVec{h.term, h.answers, h.synced, h.standbyLag} {
		g.DeleteLabelValues(strconv.Itoa(shard))
	}
}

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

// UploadDone is called after a snapshot was copied to a store, or was not.
func (h *Metrics) UploadDone(code string, took time.Duration, bytes int64) {
	h.uploads.WithLabelValues(code).Inc()
	h.uploadSize.WithLabelValues().Add(float64(bytes))
	if code == "ok" {
		h.uploadTime.WithLabelValues().Observe(took.Seconds())
	}
}

// SnapshotUploaded is called with the newest snapshot of a store.
func (h *Metrics) SnapshotUploaded(id uint64, taken time.Time) {
	h.uploadedID.WithLabelValues().Set(float64(id))
	h.uploadedAt.WithLabelValues().Set(float64(taken.UnixMilli()) / 1e3)
}

// Training keeps the gauges of how well a run learns.
type Training struct {
	loss, auc, score, eval *prometheus.GaugeVec
}

// NewTraining registers the gauges with reg.
func NewTraining(reg prometheus.Registerer) (*Training, error) {
	m := &maker{reg: reg}
	t := newTraining(m)
	return t, errors.Join(m.errs...)
}

// newTraining is the list of those gauges.
func newTraining(m *maker) *Training {
	return &Training{
		loss: m.gauge("monolith_train_loss",
			"Log loss of the last window of examples, before they were trained on. head is empty in a job without heads.", "head"), auc: m.gauge("monolith_train_auc_ratio",
			"AUC of the last window of examples, before they were trained on.", "head"), score: m.gauge("monolith_train_score",
			"Other metrics of the last window of examples, before they were trained on: those of heads that predict values.", "head", "metric"), eval: m.gauge("monolith_eval_score",
			"Metrics of the last evaluation while training.", "head", "metric"),
	}
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

// Secrets keeps count of the files of certificates, authorities and tokens that a process uses.
type Secrets struct {
	ends          *prometheus.GaugeVec
	failed, token *prometheus.CounterVec
}

// NewSecrets registers their metrics with reg.
func NewSecrets(reg prometheus.Registerer) (*Secrets, error) {
	m := &maker{reg: reg}
	c := newSecrets(m)
	return c, errors.Join(m.errs...)
}

// newSecrets is the list of those metrics.
func newSecrets(m *maker) *Secrets {
	return &Secrets{
		ends: m.gauge("monolith_tls_expiry_timestamp_seconds",
			"When the certificate that is used of a file expires, in Unix time; of a file of authorities, the first that has not expired.", "file"),
		failed: m.counter("monolith_tls_reload_failures_total",
			"How often, every ten seconds, a file of certificates could not be used, so that what it held before still is; the log says why.", "file"),
		token: m.counter("monolith_token_reload_failures_total",
			"How often, every ten seconds, the file of a token could not be used (it is gone, empty or no text), so that what it held before still is; the log says why.", "file"),
	}
}

// CertificateUsed sets when what is used of a file expires. Its failures are counted from then on.
func (c *Secrets) CertificateUsed(file string, until time.Time) {
	c.ends.WithLabelValues(file).Set(float64(until.Unix()))
	c.failed.WithLabelValues(file)
}

// CertificateFailed counts a look at a file that cannot be used.
func (c *Secrets) CertificateFailed(file string) { c.failed.WithLabelValues(file).Inc() }

// TokenUsed makes the series of a token's file: its failures are counted from then on.
func (c *Secrets) TokenUsed(file string) { c.token.WithLabelValues(file) }

// TokenFailed counts a look at a token's file that cannot be used.
func (c *Secrets) TokenFailed(file string) { c.token.WithLabelValues(file).Inc() }

// Build is what runs.
type Build struct {
	Version, Revision, Go string
}

// RegisterMemory registers gauges of the memory that the tables of this process take and may take, which used tells whenever somebody looks.
func RegisterMemory(reg prometheus.Registerer, used func() (bytes, limit int64)) error {
	m := &maker{reg: reg}
	newMemory(m, used)
	return errors.Join(m.errs...)
}

// newMemory are the gauges of the memory of tables.
func newMemory(m *maker, used func() (bytes, limit int64)) {
	m.gaugeFunc(func() float64 {
		bytes, _ := used()
		return float64(bytes)
	}, "monolith_ps_memory_bytes", "Memory that tables of this process take, with the copies that snapshots keep. No series in a process without tables, or where no limit is known.")
	m.gaugeFunc(func() float64 {
		_, limit := used()
		return float64(limit)
	}, "monolith_ps_memory_limit_bytes", "Memory that tables of this process may take: ps.memory, or what the machine or its control group leaves for them.")
}

// RegisterBuild registers the build_info gauge.
func RegisterBuild(reg prometheus.Registerer, b Build) error {
	m := &maker{reg: reg}
	newBuild(m).WithLabelValues(b.Version, b.Revision, b.Go).Set(1)
	return errors.Join(m.errs...)
}

// newBuild is the gauge of what runs.
func newBuild(m *maker) *prometheus.GaugeVec {
	return m.gauge("monolith_build_info",
		"Always 1; the labels say what runs.", "version", "revision", "go_version")
}
