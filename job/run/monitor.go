package run

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

const (
	// glanceWindow is the number of examples of the metrics that a progress line shows.
	glanceWindow = 1 << 14
	// glanceEvery is the time between progress reports.
	glanceEvery = 250 * time.Millisecond
	// rateOver is the time that a rate is measured over.
	rateOver = 5 * time.Second
	// outputWaits is from when on progress says that an output is busy.
	outputWaits = 2 * time.Second
)

// monitor watches a run: it keeps the metrics of a progress line, counts, and reports progress. Its methods may be called
// from several goroutines at once.
type monitor struct {
	features featuresParsedHook // is called with the features; may be nil
	report   func(result.Status)
	also     trainstep.Observer // is notified of every batch too, one at a time; may be nil
	// numbers looks at what is trained on; may be nil.
	numbers *numberWatch
	// fills counts which features there are; may be nil. watched is the phase that both watch.
	fills   *fillWatch
	watched string
	// times counts records of other times than a backfill's; may be nil.
	times *timeWatch
	// doubts looks at what is predicted; may be nil.
	doubts  *doubtWatch
	outputs *wiring.Outputs // of the job; nil: there are none

	mu       sync.Mutex
	phase    result.Status
	began    time.Time
	examples int64
	bad      int64                                // rows left out, of the run
	total    func() (examples int64, workers int) // of all workers; nil when there is this one
	lag      map[string]int64
	glances  []glance // of the heads
	// lost are ranges of records that were passed over, lostRecords counts all.
	lost        []result.LostRange
	lostRecords int64
	rates       []ratePoint
}

type ratePoint struct {
	at       time.Time
	examples int64
}

func newMonitor(cfg *spec.Config, opts Options, metrics *telemetry.Metrics) *monitor {
	m := &monitor{
		watched: "train", report: opts.Status, also: opts.Observe, began: time.Now(), lag: map[string]int64{},
		glances: glancesOf(cfg),
	}
	if metrics != nil {
		m.features = metrics
	}
	return m
}

var (
	_ pipeline.LagHook         = (*monitor)(nil)
	_ pipeline.RowDroppedHook  = (*monitor)(nil)
	_ pipeline.RecordsLostHook = (*monitor)(nil)
	_ pipeline.StageDoneHook   = (*monitor)(nil)
)

// begin starts a phase; done is the number of examples of it that earlier runs have done.
func (m *monitor) begin(p result.Status, done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase, m.examples, m.rates, m.total = p, done, nil, nil
	clear(m.lag)
}

// follow has progress count the examples of all workers from now on.
func (m *monitor) follow(total func() (examples int64, workers int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = total
}

// observe is the [trainstep.Observer] of a run. What it sees is for a glance only: the batch may never be pushed, so what
// a snapshot stores of predictions travels with the push (invariant 2).
func (m *monitor) observe(o trainstep.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.examples += int64(o.Scores.Rows)
	for i := range o.Scores.Heads {
		if h := &o.Scores.Heads[i]; i < len(m.glances) && (h.Width == h.NumLabels || h.NumLabels == 1) {
			m.glances[i].window.Add(h.Width, h.Predictions, h.Labels, o.Scores.Weights, h.Mask)
		}
	}
	if m.doubts != nil && m.phase.Phase == m.watched {
		m.doubts.add(int64(o.Scores.Rows), m.glances)
	}
	if m.also != nil {
		m.also(o)
	}
}

// Lag implements [pipeline.LagHook].
func (m *monitor) Lag(source, split string, records int64) {
	m.mu.Lock()
	m.lag[split] = records
	m.mu.Unlock()
}

// RowDropped implements [pipeline.RowDroppedHook].
func (m *monitor) RowDropped(source, reason string, rows int64) {
	m.mu.Lock()
	m.bad += rows
	m.mu.Unlock()
}

// lostRanges is how many ranges of lost records a result names; those after them are counted.
const lostRanges = 100

// RecordsLost implements [pipeline.RecordsLostHook].
func (m *monitor) RecordsLost(source, split string, from, to int64) {
	m.mu.Lock()
	m.lostRecords += to - from
	if len(m.lost) < lostRanges {
		m.lost = append(m.lost, result.LostRange{Split: split, From: from, To: to})
	}
	m.mu.Unlock()
}

// lostSoFar returns what was passed over because it was gone.
func (m *monitor) lostSoFar() (records int64, ranges []result.LostRange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lostRecords, slices.Clone(m.lost)
}

// StageDone implements [pipeline.StageDoneHook].
func (m *monitor) StageDone(stage string, rows int, d time.Duration) {
	if stage == wiring.NodeMetrics || stage == wiring.NodePredictions { // the sink of an evaluation, or of predictions
		m.mu.Lock()
		m.examples += int64(rows)
		m.mu.Unlock()
	}
}

// run reports progress until stop is closed.
func (m *monitor) run(stop <-chan struct{}) {
	if m.report == nil {
		return
	}
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if p := m.current(); p.Phase != "" { // something has begun
				m.report(p)
			}
		}
	}
}

// current samples the run.
func (m *monitor) current() result.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.phase, time.Now()
	p.Examples, p.Bad, p.Elapsed, p.Lag = m.examples, m.bad, now.Sub(m.began), 0
	if m.total != nil {
		all, workers := m.total()
		p.Examples, p.Workers = max(all, m.examples), workers // what this one has done may be newer
	}
	for _, lag := range m.lag {
		if lag < 0 {
			p.Lag = -1
			break
		}
		p.Lag += lag
	}
	if len(m.lag) == 0 {
		p.Lag = -1
	}
	m.rates = append(m.rates, ratePoint{now, p.Examples})
	for len(m.rates) > 2 && now.Sub(m.rates[0].at) > rateOver {
		m.rates = m.rates[1:]
	}
	p.Rate = math.NaN()
	if first := m.rates[0]; now.Sub(first.at) > 0 {
		p.Rate = float64(p.Examples-first.examples) / now.Sub(first.at).Seconds()
	}
	p.Outputs = nil
	if m.outputs != nil {
		for _, s := range m.outputs.States() {
			if s.Waits < outputWaits {
				s.Waits = 0
			}
			if s.Lacks > 0 || s.Waits > 0 {
				p.Outputs = append(p.Outputs, result.OutputState(s))
			}
		}
	}
	p.Scores = nil
	if p.Phase == "train" {
		for i := range m.glances {
			g := &m.glances[i]
			if g.window.Len() == 0 {
				continue
			}
			for _, metric := range g.metrics {
				p.Scores = append(p.Scores, result.HeadScore{Head: g.head, Metric: metric.Name, Value: g.window.Compute(metric)})
			}
		}
	}
	return p
}
