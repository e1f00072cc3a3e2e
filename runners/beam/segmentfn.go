package beam

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/sdf"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/rtrackers/offsetrange"

	"github.com/monolith-go/monolith/pipeline"
)

// segmentFn is what both forms of the segment's DoFn share. Beam calls the exported methods by name.
type segmentFn struct {
	// Spec describes which run it is; it travels as JSON.
	Spec spec
}

// CreateInitialRestriction returns the account of a task.
func (f *segmentFn) CreateInitialRestriction(elem []byte) (offsetrange.Restriction, error) {
	t, err := decodeTask(elem)
	return t.restriction(), err
}

// SplitRestriction does not split: a task has one executor.
func (f *segmentFn) SplitRestriction(_ []byte, r offsetrange.Restriction) []offsetrange.Restriction {
	return []offsetrange.Restriction{r}
}

// RestrictionSize is the work that is left, or 1 when nobody knows.
func (f *segmentFn) RestrictionSize(_ []byte, r offsetrange.Restriction) float64 {
	if r.End == math.MaxInt64 {
		return 1
	}
	return r.Size()
}

// CreateTracker returns a tracker that can be checkpointed but not cut.
func (f *segmentFn) CreateTracker(r offsetrange.Restriction) (*sdf.LockRTracker, error) {
	return newTracker(r)
}

// TruncateRestriction leaves nothing to do, for a runner that drains; the executor is then drained by the bundle that gets
// the empty restriction.
func (f *leaseFn) TruncateRestriction(rt *sdf.LockRTracker, _ []byte) offsetrange.Restriction {
	r := rt.GetRestriction().(offsetrange.Restriction)
	return offsetrange.Restriction{Start: r.Start, End: r.Start}
}

// open enters the run and acquires the lease of a task. leave leaves the run, not the lease. A nil lease: the restriction
// is empty and there is no executor to drain.
func (f *segmentFn) open(ctx context.Context, rt *sdf.LockRTracker, elem []byte) (l *lease, fresh bool, leave func(), err error) {
	t, err := decodeTask(elem)
	if err != nil {
		return nil, false, nil, err
	}
	r, err := process.enter(f.Spec)
	if err != nil {
		return nil, false, nil, err
	}
	leave = func() { process.leave(r) }
	truncated := rt.IsDone()
	if truncated && !r.has(t) {
		return nil, false, leave, nil
	}
	l, fresh, err = r.acquire(ctx, t)
	if err != nil {
		if ctx.Err() == nil { // otherwise the runner takes the bundle back, and gives the task to another
			r.failed(err)
		}
		leave()
		return nil, false, nil, err
	}
	if truncated {
		l.endEarly(false)
	}
	return l, fresh, leave, nil
}

func (r *runState) has(t task) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leases[t.Index] != nil
}

// collect takes an ended executor out of its run and emits what it did.
func (l *lease) collect(ctx context.Context, emit func([]byte)) error {
	if l.err != nil {
		l.abandon() // the output of a failed bundle is dropped
		l.run.failed(l.err)
		return l.err
	}
	rec := l.record()
	rec.Counted = l.run.owned
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("beam: statistics of task %d: %w", l.task.Index, err)
	}
	if err := l.run.ended(ctx, l.task.Index); err != nil {
		return fmt.Errorf("beam: task %d has ended, which cannot be told: %w", l.task.Index, err)
	}
	l.remove(func() {
		if l.run.owned {
			l.run.addLocked(rec)
		}
	})
	rows.Inc(ctx, l.stats.Rows)
	batches.Inc(ctx, l.stats.Batches)
	leftOut.Inc(ctx, l.stats.LeftOut)
	for reason, n := range l.stats.BadRows {
		sdk.NewCounter("monolith", badRows+reason).Inc(ctx, n)
	}
	emit(b)
	return nil
}

// leaseFn is the segment on a runner that takes an element back: each bundle renews the lease, claims the progress made
// since the last and returns.
type leaseFn struct{ segmentFn }

// InitialWatermarkEstimatorState is the beginning of time.
func (f *leaseFn) InitialWatermarkEstimatorState(sdk.EventTime, offsetrange.Restriction, []byte) int64 {
	return int64(mtime.MinTimestamp)
}

// CreateWatermarkEstimator restores the watermark, in milliseconds.
func (f *leaseFn) CreateWatermarkEstimator(ms int64) *sdf.ManualWatermarkEstimator {
	return &sdf.ManualWatermarkEstimator{State: mtime.Time(ms).ToTime()}
}

// WatermarkEstimatorState stores the watermark, in milliseconds.
func (f *leaseFn) WatermarkEstimatorState(e *sdf.ManualWatermarkEstimator) int64 {
	return int64(mtime.FromTime(e.State))
}

// ProcessElement gives the task's executor another while. It emits one record when the executor has ended.
func (f *leaseFn) ProcessElement(ctx context.Context, we *sdf.ManualWatermarkEstimator, rt *sdf.LockRTracker, elem []byte, emit func([]byte)) (sdf.ProcessContinuation, error) {
	l, fresh, leave, err := f.open(ctx, rt, elem)
	if err != nil {
		return nil, err
	}
	defer leave()
	if l == nil {
		return sdf.StopProcessing(), nil
	}
	if fresh && !rt.IsDone() {
		// The others of the bundle are started first.
		return sdf.ResumeProcessingIn(0), nil
	}
	ended := false
	for first := true; !ended && (first || rt.IsDone()); first = false { // a truncated task does not come again
		if ended, err = l.wait(ctx); err != nil {
			return nil, err
		}
		l.renew() // the lease runs from the end of the bundle
	}
	account, upTo := l.progress()
	if upTo > 0 {
		if t := time.UnixMicro(upTo); t.After(we.State) {
			we.UpdateWatermark(t)
		}
	}
	switch {
	case ended && l.expired():
		l.abandon() // the process slept through it; the next bundle begins another
	case ended:
		if err := l.collect(ctx, emit); err != nil {
			return nil, err
		}
		finish(rt)
		return sdf.StopProcessing(), nil
	}
	if rt.IsDone() {
		return sdf.StopProcessing(), nil
	}
	// What is applied may be far ahead of a restored restriction, or after it.
	claim(rt, account)
	return sdf.ResumeProcessingIn(0), nil
}

// boundedFn is the segment on a runner that takes no element of a bounded source back: the bundle keeps the lease until
// the executor has ended.
type boundedFn struct{ segmentFn }

// ProcessElement runs the task to its end and emits one record.
func (f *boundedFn) ProcessElement(ctx context.Context, rt *sdf.LockRTracker, elem []byte, emit func([]byte)) error {
	l, _, leave, err := f.open(ctx, rt, elem)
	if err != nil {
		return err
	}
	defer leave()
	if l == nil {
		return nil
	}
	for ended := false; !ended; {
		if ended, err = l.wait(ctx); err != nil {
			l.cancel(err)
			<-l.done
			l.abandon()
			return err
		}
		l.renew()
		account, _ := l.progress()
		claim(rt, account)
		if ended && l.expired() {
			l.abandon() // the process slept through it
			if l, _, err = l.run.acquire(ctx, l.task); err != nil {
				return err
			}
			ended = false
		}
	}
	if err := l.collect(ctx, emit); err != nil {
		return err
	}
	finish(rt)
	return nil
}

// record says what an executor did.
type record struct {
	Run  string
	Task int
	// Segment is that of the task.
	Segment int
	// Again: an earlier executor of the same process had the task.
	Again bool
	// Counted: the run has counted it already.
	Counted bool
	// Stats travel without their Splits, which are listed.
	Stats  pipeline.RunStats
	Splits []splitProgress
}

type splitProgress struct {
	Split    pipeline.SplitID
	Progress pipeline.Progress
}

// whole returns the statistics with their splits.
func (r record) whole() pipeline.RunStats {
	s := pipeline.Sum(r.Stats)
	for _, p := range r.Splits {
		s.Splits[p.Split] = p.Progress
	}
	return s
}

// Counters of what executors that have ended did, for runners that show them.
var (
	rows    = sdk.NewCounter("monolith", "rows")
	batches = sdk.NewCounter("monolith", "batches")
	leftOut = sdk.NewCounter("monolith", "left_out")
)

// badRows begins the names of counters of bad rows, behind which the reason is.
const badRows = "bad_rows: "

// count adds what a runner has for a counter to the statistics.
func count(stats *pipeline.RunStats, name string, n int64) {
	switch name {
	case "rows":
		stats.Rows += n
	case "batches":
		stats.Batches += n
	case "left_out":
		stats.LeftOut += n
	}
	if reason, ok := strings.CutPrefix(name, badRows); ok {
		*stats = pipeline.Sum(*stats, pipeline.RunStats{BadRows: map[string]int64{reason: n}})
	}
}

// collectFn hands records to the Run of this process. It is downstream of a Reshuffle: Prism keeps a core busy for a stage
// without outputs as long as a bundle of it lasts, so the segment must not be in such a stage.
type collectFn struct {
	// Spec describes which run it is.
	Spec spec
}

// ProcessElement adds a record to the statistics of its run; outside of the submitting process it drops it.
func (f *collectFn) ProcessElement(b []byte) error {
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return fmt.Errorf("beam: statistics %q: %w", b, err)
	}
	if f.Spec.Process != process.self || rec.Counted {
		return nil
	}
	r, err := process.enter(f.Spec)
	if err != nil {
		return err
	}
	defer process.leave(r)
	r.add(rec)
	return nil
}
