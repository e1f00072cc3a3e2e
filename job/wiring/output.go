package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

// outputQueue is how many batches wait for an output of rows, so that training does not wait for each of its files and commits.
// Predictions do not wait: what the shards have learnt from must have been taken ([Outputs.Flush]).
const outputQueue = 4

// Outputs are the open writers of a job's outputs, by worker. The zero value is ready; nil is for a graph that is only planned.
// It is safe for concurrent use.
type Outputs struct {
	// Found, unless nil, is called with the name of an output that has rows of the source already when a worker opens it. It is set
	// before a run, and called by several goroutines.
	Found func(output string)

	mu       sync.Mutex
	byWorker map[int][]*output
}

// Flush makes what the outputs of a worker have taken durable. It is called before the shards store a snapshot, so that
// training that goes back to it makes no prediction again that was written. Errors: those of the outputs.
func (o *Outputs) Flush(ctx context.Context, worker int) error {
	o.mu.Lock()
	open := slices.Clone(o.byWorker[worker])
	o.mu.Unlock()
	errs := make([]error, len(open))
	for i, w := range open {
		errs[i] = w.Flush(ctx)
	}
	return errors.Join(errs...)
}

func (o *Outputs) add(worker int, w *output) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byWorker == nil {
		o.byWorker = map[int][]*output{}
	}
	o.byWorker[worker] = append(o.byWorker[worker], w)
}

func (o *Outputs) remove(worker int, w *output) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byWorker[worker] = slices.DeleteFunc(o.byWorker[worker], func(x *output) bool { return x == w })
}

// sink makes the sink of output i, whose writers are in all.
func (o *Outputs) sink(c *spec.Config, i int) (pipeline.Sink[*pipeline.Batch], error) {
	out := &c.Outputs[i]
	if out.To.Value() == nil {
		return nil, fmt.Errorf("job: outputs[%d].to is not set: say where the rows go: %w", i, pipeline.ErrConfig)
	}
	inner, err := out.To.Value().Sink(out.Name+"/"+c.Name, fmt.Sprintf("outputs[%d].to.%s.", i, out.To.Name()))
	if err != nil {
		return nil, err
	}
	return outputSink{inner, out.Name, o}, nil
}

// outputSink is a sink whose writers may be flushed from elsewhere.
type outputSink struct {
	pipeline.Sink[*pipeline.Batch]
	name string
	all  *Outputs
}

// Open implements [pipeline.Sink].
func (s outputSink) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	w, err := s.Sink.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	stores, ok := w.(storing)
	if !ok {
		return nil, errors.Join(fmt.Errorf("job: %s stores no positions: %w", s, pipeline.ErrConfig), w.Close())
	}
	out := &output{w: stores, name: s.name, all: s.all, worker: env.Worker}
	s.all.add(env.Worker, out)
	return out, nil
}

// storing is what the writers of outputs are.
type storing interface {
	pipeline.Writer[*pipeline.Batch]
	pipeline.Resumer
	pipeline.Storer
	pipeline.Idler
}

// output is a writer for two goroutines: that which writes, and that which flushes before a snapshot.
type output struct {
	mu     sync.Mutex
	w      storing
	name   string
	all    *Outputs
	worker int
}

var _ storing = (*output)(nil)

// Write implements [pipeline.Writer].
func (o *output) Write(ctx context.Context, b *pipeline.Batch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(ctx, b)
}

// Flush implements [pipeline.Writer].
func (o *output) Flush(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Flush(ctx)
}

// Idle implements [pipeline.Idler].
func (o *output) Idle(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Idle(ctx)
}

// Resume implements [pipeline.Resumer].
func (o *output) Resume(ctx context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, err := o.w.Resume(ctx, source, splits)
	if len(have) > 0 && o.all.Found != nil {
		o.all.Found(o.name)
	}
	return have, err
}

// Stored implements [pipeline.Storer].
func (o *output) Stored(split pipeline.SplitID) pipeline.Position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Stored(split)
}

// Close implements [pipeline.Writer].
func (o *output) Close() error {
	o.all.remove(o.worker, o)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Close()
}

// ends makes the sinks of the job's outputs of a kind. streams gives a stream for each of them, if there are any. What it
// returns ends the streams in the sinks; it is called once the graph's main sink is built, which is the first one.
func (o *Outputs) ends(c *spec.Config, of string, streams func(n int) []pipeline.Stream[*pipeline.Batch], queue int) (func(), error) {
	var names []string
	var sinks []pipeline.Sink[*pipeline.Batch]
	for i := range c.Outputs {
		out := &c.Outputs[i]
		if out.Of != of {
			continue
		}
		s, err := o.sink(c, i)
		if err != nil {
			return nil, err
		}
		names, sinks = append(names, "output "+out.Name), append(sinks, s)
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
