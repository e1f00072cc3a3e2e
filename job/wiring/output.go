package wiring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

// outputQueue is how many batches wait for an output of rows, so that training does not wait for each of its files and commits.
// Predictions do not wait: what the shards have learnt from must have been taken ([Outputs.Flush]).
const outputQueue = 4

// OutputStoredHook is notified of what outputs store.
type OutputStoredHook interface {
	// OutputStored tells of files or transactions that became visible, with all their rows and bytes.
	OutputStored(output string, stores, rows, bytes int64)
}

// OutputFailedHook is notified of outputs that cannot store.
type OutputFailedHook interface {
	// OutputFailed tells of a file or transaction that failed, with the label of the error's code.
	OutputFailed(output, code string)
}

// OutputLagHook is notified how far behind outputs are.
type OutputLagHook interface {
	// OutputLag tells how many rows this process has given an output, or is to give it because others have them already, that
	// are not stored yet.
	OutputLag(output string, rows int64)
}

// Outputs are the open writers of a job's outputs, by worker. The zero value is ready; nil is for a graph that is only planned.
// It is safe for concurrent use, but for the fields.
type Outputs struct {
	// Part keeps what is written apart from what else is written to the same places ([component.Writing]).
	Part string
	// Trained returns how far the parameters are in the splits of a source, to say how much an output lacks of what is trained;
	// nil: nothing is trained.
	Trained func(ctx context.Context, source string) (map[string]pipeline.Progress, error)
	// Found, unless nil, is called with the name of an output that has rows of the source already when a worker opens it. It is set
	// before a run, and called by several goroutines.
	Found func(output string)

	mu       sync.Mutex
	byWorker map[int][]*output
	lags     map[string]*outputLag
	// behind says why an output of a worker lacks what it had taken when it was closed, until one is opened again.
	behind map[int]error
}

// flushAtClose bounds how long an output that is closed may take to store what it has taken.
const flushAtClose = 10 * time.Second

// outputLag is how far behind an output is, over all workers of the process.
type outputLag struct {
	waiting atomic.Int64              // rows that were taken and are not stored
	lacking atomic.Int64              // rows that are trained and were not taken
	calls   atomic.Int64              // under way
	since   atomic.Pointer[time.Time] // when the oldest of them may have begun; nil before the first
}

// busy makes a call of an output.
func (l *outputLag) busy(call func() error) error {
	if l.calls.Add(1) == 1 {
		now := time.Now()
		l.since.Store(&now)
	}
	defer l.calls.Add(-1)
	return call()
}

// OutputState is how an output does.
type OutputState struct {
	Name string
	// Lacks is how many rows are trained that it was never given: it is being given them.
	Lacks int64
	// Waits is how long it has been busy with one batch, file or transaction, or with being opened.
	Waits time.Duration
}

// States tells how the outputs do that are open.
func (o *Outputs) States() []OutputState {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []OutputState
	for name, l := range o.lags {
		s := OutputState{Name: name, Lacks: l.lacking.Load()}
		if since := l.since.Load(); since != nil && l.calls.Load() > 0 {
			s.Waits = time.Since(*since)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b OutputState) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return out
}

// Flush makes what the outputs of a worker have taken durable. It is called before the shards store a snapshot, so that
// training that goes back to it makes no prediction again that was written. Errors: those of the outputs, also of one that was closed
// and could not store what it had taken.
func (o *Outputs) Flush(ctx context.Context, worker int) error {
	o.mu.Lock()
	open, behind := slices.Clone(o.byWorker[worker]), o.behind[worker]
	o.mu.Unlock()
	errs := []error{behind}
	for _, w := range open {
		errs = append(errs, w.named(w.Flush(ctx)))
	}
	return errors.Join(errs...)
}

// Behind is why outputs that were closed lack what they had taken; nil when none does.
func (o *Outputs) Behind() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(slices.Collect(maps.Values(o.behind))...)
}

// lag is how far behind an output is, by name.
func (o *Outputs) lag(name string) *outputLag {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lags[name] == nil {
		if o.lags == nil {
			o.lags = map[string]*outputLag{}
		}
		o.lags[name] = &outputLag{}
	}
	return o.lags[name]
}

func (o *Outputs) add(worker int, w *output) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byWorker == nil {
		o.byWorker = map[int][]*output{}
	}
	o.byWorker[worker] = append(o.byWorker[worker], w)
	delete(o.behind, worker)
}

// remove takes a closed output out; err is why it lacks what it had taken.
func (o *Outputs) remove(worker int, w *output, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if o.behind == nil {
			o.behind = map[int]error{}
		}
		o.behind[worker] = errors.Join(o.behind[worker], err)
	}
	o.byWorker[worker] = slices.DeleteFunc(o.byWorker[worker], func(x *output) bool { return x == w })
}

// outputSink is a sink whose writers may be flushed from elsewhere.
type outputSink struct {
	component.OutputSink
	name string
	all  *Outputs
}

// Open implements [pipeline.Sink].
func (s outputSink) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	lag := s.all.lag(s.name)
	var w component.OutputWriter
	err := lag.busy(func() (err error) {
		w, err = s.OutputSink.Open(ctx, env)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", s.name, err)
	}
	hooks := env.Observe()
	out := &output{
		w: w, all: s.all, worker: env.Worker, name: s.name, lag: lag, lacking: map[pipeline.SplitID]int64{},
		stored: pipeline.HooksOf[OutputStoredHook](hooks), failed: pipeline.HooksOf[OutputFailedHook](hooks), behind: pipeline.HooksOf[OutputLagHook](hooks),
	}
	s.all.add(env.Worker, out)
	return out, nil
}

// output is a writer for two goroutines: that which writes, and that which flushes before a snapshot. It counts what is stored.
type output struct {
	all    *Outputs
	worker int
	name   string
	lag    *outputLag
	stored []OutputStoredHook
	failed []OutputFailedHook
	behind []OutputLagHook

	mu      sync.Mutex
	w       component.OutputWriter
	counted [3]int64 // stores, rows, bytes that the hooks know of
	waiting int64    // its rows in lag
	lacking map[pipeline.SplitID]int64
	dirty   bool  // it has taken what it was not made to store
	failure error // the first; it was told
	closed  bool
}

var _ component.OutputWriter = (*output)(nil)

// do calls the writer and tells the hooks what it has stored. The lock is held.
func (o *output) do(call func() error) error {
	err := o.lag.busy(call)
	stores, rows, bytes := o.w.Totals()
	if d := [3]int64{stores - o.counted[0], rows - o.counted[1], bytes - o.counted[2]}; d[0] > 0 {
		o.counted = [3]int64{stores, rows, bytes}
		for _, h := range o.stored {
			h.OutputStored(o.name, d[0], d[1], d[2])
		}
		o.wait(-d[1])
	}
	if err != nil && o.failure == nil {
		o.failure = err
		for _, h := range o.failed {
			h.OutputFailed(o.name, failure.Of(err).Label())
		}
	}
	return err
}

// named gives an error the output's name where the executor does not: it does for Write and the Flush at the end.
func (o *output) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("output %s: %w", o.name, err)
}

// wait changes the number of rows that wait.
func (o *output) wait(rows int64) {
	o.waiting += rows
	o.lag.waiting.Add(rows)
	o.tell()
}

func (o *output) tell() {
	for _, h := range o.behind {
		h.OutputLag(o.name, o.lag.waiting.Load()+o.lag.lacking.Load())
	}
}

// Write implements [pipeline.Writer].
func (o *output) Write(ctx context.Context, b *pipeline.Batch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows := int64(b.NumRows())
	if len(o.lacking) > 0 {
		id := b.Origin().ID()
		if n := min(rows, o.lacking[id]); n > 0 {
			o.lag.lacking.Add(-n)
			if o.lacking[id] -= n; o.lacking[id] == 0 {
				delete(o.lacking, id)
			}
		}
	}
	o.wait(rows)
	o.dirty = true
	return o.do(func() error { return o.w.Write(ctx, b) })
}

// Flush implements [pipeline.Writer].
func (o *output) Flush(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flush(ctx)
}

// flush is Flush. The lock is held.
func (o *output) flush(ctx context.Context) error {
	err := o.do(func() error { return o.w.Flush(ctx) })
	if err == nil {
		o.dirty = false
	}
	return err
}

// Idle implements [pipeline.Idler].
func (o *output) Idle(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.named(o.do(func() error { return o.w.Idle(ctx) }))
}

// Resume implements [pipeline.Resumer].
func (o *output) Resume(ctx context.Context, source string, splits []pipeline.Split) (at map[string]pipeline.Progress, err error) {
	var trained map[string]pipeline.Progress
	if o.all.Trained != nil {
		if trained, err = o.all.Trained(ctx, source); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err = o.do(func() (err error) {
		at, err = o.w.Resume(ctx, source, splits)
		return err
	})
	for _, sp := range splits {
		if n := trained[sp.Name].Rows - at[sp.Name].Rows; n > 0 {
			o.lacking[pipeline.SplitID{Source: source, Split: sp.Name}] += n
			o.lag.lacking.Add(n)
		}
	}
	o.tell()
	if len(at) > 0 && o.all.Found != nil {
		o.all.Found(o.name)
	}
	return at, o.named(err)
}

// Stored implements [pipeline.Storer].
func (o *output) Stored(split pipeline.SplitID) pipeline.Position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Stored(split)
}

// Totals implements [component.OutputWriter].
func (o *output) Totals() (stores, rows, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Totals()
}

// Close implements [pipeline.Writer]. It stores what the writer has taken, unless that has failed before: a run that is ended in the
// middle has pushed it, and a snapshot that is taken then must not be ahead of the outputs.
func (o *output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	var behind error
	if o.dirty {
		if behind = o.failure; behind == nil {
			ctx, cancel := context.WithTimeout(context.Background(), flushAtClose)
			behind = o.flush(ctx)
			cancel()
		}
		behind = o.named(behind)
	}
	for id, n := range o.lacking { // who reads the split next says so again
		o.lag.lacking.Add(-n)
		delete(o.lacking, id)
	}
	o.wait(-o.waiting)
	o.all.remove(o.worker, o, behind)
	return o.w.Close()
}

// outputList is a list of outputs in a job, with the path of its key.
type outputList struct {
	job  *spec.Config
	list []spec.Output
	path string
}

// ends makes the sinks of the outputs of a kind. streams gives a stream for each of them, if there are any. What it
// returns ends the streams in the sinks; it is called once the graph's main sink is built, which is the first one.
func (o *Outputs) ends(of outputList, kind string, streams func(n int) []pipeline.Stream[*pipeline.Batch], queue int) (func(), error) {
	var names []string
	var sinks []pipeline.Sink[*pipeline.Batch]
	for i := range of.list {
		out := &of.list[i]
		if out.Of != kind {
			continue
		}
		path := fmt.Sprintf("%s[%d].to", of.path, i)
		if out.To.Value() == nil {
			return nil, fmt.Errorf("job: %s is not set: say where the rows go: %w", path, pipeline.ErrConfig)
		}
		s, err := out.To.Value().Sink(component.Writing{Output: out.Name + "/" + of.job.Name + "/" + kind, Part: o.Part, Keys: path + "." + out.To.Name() + "."})
		if err != nil {
			return nil, err
		}
		names, sinks = append(names, "output "+out.Name), append(sinks, outputSink{s, out.Name, o})
	}
	if len(sinks) == 0 {
		return func() {}, nil
	}
	branches := streams(len(sinks))
	return func() {
		for i, s := range sinks {
			b := branches[i]
			if queue > 0 {
				b = pipeline.Prefetch(b, names[i]+" queue", queue)
			}
			pipeline.Into(b, names[i], s)
		}
	}, nil
}

// shareRows gives outputs of rows their streams, and examples on to what else is done with them.
func (o *Outputs) shareRows(of outputList, examples *pipeline.Stream[*pipeline.Batch]) (func(), error) {
	return o.ends(of, "rows", func(n int) []pipeline.Stream[*pipeline.Batch] {
		branches := pipeline.Tee(*examples, "share rows", n+1)
		*examples = branches[0]
		return branches[1:]
	}, outputQueue)
}

// sharePredictions gives outputs of predictions their streams, of a side output.
func (o *Outputs) sharePredictions(of outputList, side func() pipeline.Stream[*pipeline.Batch]) (func(), error) {
	return o.ends(of, "predictions", func(n int) []pipeline.Stream[*pipeline.Batch] {
		if n == 1 {
			return []pipeline.Stream[*pipeline.Batch]{side()}
		}
		return pipeline.Tee(side(), "share predictions", n)
	}, 0)
}
