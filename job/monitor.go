package job

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

const (
	// progressiveWindow is the number of examples that progressive metrics are over. It is stored in every snapshot, at 12
	// bytes an example, so that a resumed run reports what an uninterrupted one would.
	progressiveWindow = 1 << 16
	// glanceWindow is the number of examples of the loss and AUC that a progress line shows.
	glanceWindow = 1 << 14
	// glanceEvery is the time between progress reports.
	glanceEvery = 250 * time.Millisecond
	// rateOver is the time that a rate is measured over.
	rateOver = 5 * time.Second
)

// monitor watches a run: it keeps the metrics windows, counts, and reports progress. Its methods may be called from
// several goroutines at once.
type monitor struct {
	pipeline.NopHooks
	next   pipeline.Hooks // hears of everything too
	report func(Progress)
	also   trainstep.Observer // hears of every batch too, one at a time; may be nil

	mu          sync.Mutex
	phase       Progress
	began       time.Time
	examples    int64
	lag         map[string]int64
	progressive *metric.Window
	glance      *metric.Window
	unpushed    map[int][]seen // by worker, oldest first
	spare       []seen
	rates       []ratePoint
}

type ratePoint struct {
	at       time.Time
	examples int64
}

func newMonitor(opts RunOptions, next pipeline.Hooks) *monitor {
	if next == nil {
		next = pipeline.NopHooks{}
	}
	return &monitor{
		next: next, report: opts.Progress, also: opts.Observe, began: time.Now(), lag: map[string]int64{}, unpushed: map[int][]seen{},
		progressive: metric.NewWindow(progressiveWindow), glance: metric.NewWindow(glanceWindow),
	}
}

// begin starts a phase; done is the number of examples of it that earlier runs have done.
func (m *monitor) begin(p Progress, done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase, m.examples, m.rates = p, done, nil
	clear(m.lag)
}

// observe is the [trainstep.Observer] of a run. The stored window takes the batch only once it is pushed: a snapshot's cut
// may lie between a step and its push, and must not know predictions of rows that it does not hold (invariant 2).
func (m *monitor) observe(o trainstep.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.examples += int64(len(o.Probs))
	m.glance.Add(o.Probs, o.Labels, o.Weights)
	var s seen
	if n := len(m.spare); n > 0 {
		s, m.spare = m.spare[n-1], m.spare[:n-1]
	}
	s.probs, s.labels = append(s.probs[:0], o.Probs...), append(s.labels[:0], o.Labels...)
	s.weights = append(s.weights[:0], o.Weights...)
	m.unpushed[o.Worker] = append(m.unpushed[o.Worker], s)
	if m.also != nil {
		m.also(o)
	}
}

// seen is an observed batch.
type seen struct{ probs, labels, weights []float32 }

// pushed takes the oldest observed batch of a worker into the stored window: a worker pushes in the order of its steps.
func (m *monitor) pushed(worker int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := m.unpushed[worker]
	s := queue[0]
	m.unpushed[worker] = append(queue[:0], queue[1:]...)
	m.spare = append(m.spare, s)
	weights := s.weights
	if len(weights) == 0 {
		weights = nil
	}
	m.progressive.Add(s.probs, s.labels, weights)
}

// RowsRead implements [pipeline.Hooks].
func (m *monitor) RowsRead(source, split string, rows int, lag int64) {
	m.mu.Lock()
	m.lag[split] = lag
	m.mu.Unlock()
	m.next.RowsRead(source, split, rows, lag)
}

// RowDropped implements [pipeline.Hooks].
func (m *monitor) RowDropped(source, reason string) { m.next.RowDropped(source, reason) }

// StageDone implements [pipeline.Hooks].
func (m *monitor) StageDone(stage string, rows int, d time.Duration) {
	if stage == "metrics" { // the sink of an evaluation
		m.mu.Lock()
		m.examples += int64(rows)
		m.mu.Unlock()
	}
	m.next.StageDone(stage, rows, d)
}

// QueueLen implements [pipeline.Hooks].
func (m *monitor) QueueLen(queue string, length, capacity int) {
	m.next.QueueLen(queue, length, capacity)
}

// QueueWait implements [pipeline.Hooks].
func (m *monitor) QueueWait(queue, side string, d time.Duration) { m.next.QueueWait(queue, side, d) }

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
			m.report(m.look())
		}
	}
}

// look takes a glance at the run.
func (m *monitor) look() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.phase, time.Now()
	p.Examples, p.Elapsed, p.Lag = m.examples, now.Sub(m.began), 0
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
	m.rates = append(m.rates, ratePoint{now, m.examples})
	for len(m.rates) > 2 && now.Sub(m.rates[0].at) > rateOver {
		m.rates = m.rates[1:]
	}
	if first := m.rates[0]; now.Sub(first.at) > 0 {
		p.Rate = float64(m.examples-first.examples) / now.Sub(first.at).Seconds()
	}
	p.Loss, p.AUC = math.NaN(), math.NaN()
	if m.glance.Len() > 0 && p.Phase == "train" {
		s := m.glance.Summary()
		p.Loss, p.AUC = s.LogLoss, s.AUC
	}
	return p
}

// scores returns the metrics of the last examples as they were trained on, progressive or not.
func (m *monitor) scores(progressive bool) Scores {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.progressive.Len() == 0 {
		return Scores{}
	}
	s, prefix := m.progressive.Summary(), "training_"
	if progressive {
		prefix = "progressive_"
	}
	return Scores{prefix + "auc": s.AUC, prefix + "log_loss": s.LogLoss}
}

// trainerState is what a run must not forget, stored in every snapshot's cut beside the rows and positions.
type trainerState struct {
	// Source is what is trained on; all the rest belongs to it.
	Source string `json:"source"`
	// Epochs counts the epochs that are complete and evaluated.
	Epochs int `json:"epochs"`
	// LR is the factor on all learning rates.
	LR float32 `json:"lr"`
	// Best and Bad are the plateau's best metric and the evaluations since; StopBest and StopBad the early stop's.
	Best, StopBest *float64
	Bad, StopBad   int
	// Stopped tells that early_stop has ended training.
	Stopped bool `json:"stopped"`
	// Metrics are those of the last evaluation.
	Metrics Scores `json:"metrics"`
}

const (
	stateKey  = "trainer"
	windowKey = "progressive"
)

// states renders what a snapshot stores; s is only changed between epochs, when nobody passes a marker.
func (m *monitor) states(s *trainerState) map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	js, err := json.Marshal(s)
	if err != nil {
		panic("job: trainer state does not marshal: " + err.Error()) // numbers and null only
	}
	window, err := m.progressive.MarshalBinary()
	if err != nil {
		panic("job: metrics window does not marshal: " + err.Error())
	}
	return map[string][]byte{stateKey: js, windowKey: window}
}

// restore takes up what a snapshot stored, unless that was training on another source: then epochs, learning rate and
// windows begin anew, with the parameters as they are.
func (m *monitor) restore(state func(key string) []byte, source string) (*trainerState, error) {
	s := &trainerState{LR: 1}
	if b := state(stateKey); b != nil {
		if err := json.Unmarshal(b, s); err != nil {
			return nil, fmt.Errorf("job: the snapshot's trainer state: %w", err)
		}
	}
	if s.Source != source {
		return &trainerState{Source: source, LR: 1}, nil
	}
	if b := state(windowKey); b != nil {
		if err := m.progressive.UnmarshalBinary(b); err != nil {
			return nil, fmt.Errorf("job: the snapshot's metrics window: %w", err)
		}
	}
	return s, nil
}
