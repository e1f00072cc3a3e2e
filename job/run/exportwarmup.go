package run

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/runners/local"
)

// warmupPatience is how long brokers are tried for examples of a topic.
const warmupPatience = 10 * time.Second

// readWarmup reads the examples that warm-up requests are to be made of, and says of what source they are. nil: none are wanted. Bad rows are left out.
func (o *ExportModelOptions) readWarmup(ctx context.Context, m *export.Model, info *snapshot.Info) (x *export.Examples, says string, err error) {
	if o.WarmupFrom == nil {
		return nil, "", nil
	}
	if o.WarmupFrom.Model.Value() != nil { // otherwise the snapshot says what features are made of
		if _, err := stored.Fits(o.WarmupFrom, nil, info); err != nil {
			return nil, "", err
		}
	}
	r := wiring.PredictReading(o.WarmupFrom)
	if b, ok := r.Source.Value().(component.Brief); ok {
		brief := spec.SourceOf(r.Source.Name(), b.Brief(o.WarmupExamples, warmupPatience))
		r.Source = &brief
	}
	if !r.Source.Bounded() {
		return nil, "", fault.Config("job: %s does not end, and examples for warm-up requests are the first of a source that does: name files", r.KeyOf(nil))
	}
	r.Batch.Rows, r.Batch.MaxDelay = min(r.Batch.Rows, o.WarmupExamples), 0
	sink := &warmupSink{model: m, most: o.WarmupExamples}
	plan, err := wiring.ExamplesGraph(r, sink)
	if err != nil {
		return nil, "", err
	}
	_, err = local.Run(ctx, plan, pipeline.RunOptions{
		Workers: 1, Deterministic: true, MaxRows: int64(o.WarmupExamples),
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: o.Logger, BadRows: &pipeline.SkipBadRows{}}
		},
	})
	if err != nil {
		return nil, "", fmt.Errorf("job: examples for warm-up requests: %s: %w", r.KeyOf(err), err)
	}
	if sink.examples.Rows() == 0 {
		return nil, "", fault.Config("job: %s has no good example that a warm-up request could be made of", r.KeyOf(nil))
	}
	return &sink.examples, fmt.Sprintf("%d of %s", o.WarmupExamples, plan.Segments[0].Sources()[0].Source), nil
}

// writeWarmup writes the requests of examples, in place of those that a format makes up.
func (e *exporting) writeWarmup(ctx context.Context, dir string) error {
	if e.warmup == nil {
		return nil
	}
	b, err := e.model.WarmupOf(e.warmup, e.whole != nil)
	if err == nil {
		err = fsx.WriteFile(ctx, fsx.Local{}, filepath.Join(dir, filepath.FromSlash(export.WarmupName)), b)
	}
	if err != nil {
		return fmt.Errorf("warm-up requests: %w", err)
	}
	return nil
}

// warmupSink keeps the first examples of a graph. It has one writer.
type warmupSink struct {
	model    *export.Model
	most     int
	examples export.Examples
}

var (
	_ pipeline.Sink[*pipeline.Batch]   = (*warmupSink)(nil)
	_ pipeline.Writer[*pipeline.Batch] = (*warmupSink)(nil)
)

// Open implements [pipeline.Sink].
func (s *warmupSink) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	return s, nil
}

// String implements [pipeline.Sink].
func (*warmupSink) String() string { return "warm-up requests" }

// Fingerprint implements [pipeline.Sink].
func (*warmupSink) Fingerprint() string { return "warm-up requests" }

// Write implements [pipeline.Writer].
func (s *warmupSink) Write(_ context.Context, b *pipeline.Batch) error {
	defer b.Release()
	return s.examples.Add(s.model, b, s.most)
}

// Flush implements [pipeline.Writer].
func (*warmupSink) Flush(context.Context) error { return nil }

// Close implements [pipeline.Writer].
func (*warmupSink) Close() error { return nil }
