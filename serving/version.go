package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Recipe gives what a model's parse recipe says, for records that have no labels.
type Recipe func(*export.Model) (parse.Options, error)

// Version is a model that is open. Its methods may overlap, but for Close.
type Version struct {
	export *native.Export
	in     *inputs
	heads  []model.Head

	mu   sync.Mutex
	idle []*runner
}

// Open opens a native export. Errors: those of [native.Open]; what of the graph cannot be served.
func Open(ctx context.Context, dir string, recipe Recipe) (*Version, error) {
	e, err := native.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	m := e.Model()
	var opts parse.Options
	if len(m.Recipe) == 0 {
		err = fmt.Errorf("the snapshot does not say how features are made of records; take the signature %s", SignatureFeatures)
	} else {
		opts, err = recipe(m)
	}
	v := &Version{export: e, in: newInputs(m.Graph.Features(), opts, err), heads: m.Graph.Heads()}
	r, err := v.newRunner(ctx) // what would fail for every request fails here
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	v.idle = append(v.idle, r)
	return v, nil
}

// Model is the model. It belongs to the version.
func (v *Version) Model() *export.Model { return v.export.Model() }

// Close gives the memory back. Nothing may be predicted from then on.
func (v *Version) Close() error {
	var errs []error
	for _, r := range v.idle {
		errs = append(errs, r.close())
	}
	v.idle = nil
	return errors.Join(append(errs, v.export.Close())...)
}

// Predict returns the predictions of the examples for each head of the model, [rows, Width], as an evaluation makes them. They are the caller's. Errors are statuses of gRPC:
// INVALID_ARGUMENT for examples that cannot be used, DATA_LOSS where the disk does not give a row, INTERNAL.
func (v *Version) Predict(ctx context.Context, in *Input) (out [][]float32, err error) {
	if in.NumRows() == 0 {
		return nil, invalid("there are no examples to predict")
	}
	if in.Form != FormFeatures && v.in.recipeErr != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%v", v.in.recipeErr)
	}
	r, err := v.take(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	whole := false
	defer func() {
		if whole {
			v.give(r)
		} else { // a panic: the runner's buffers may be in any state
			_ = r.close() // the panic says more
		}
	}()
	out, err = r.predict(ctx, in)
	whole = true
	return out, asStatus(err)
}

// take takes an idle runner, or makes one.
func (v *Version) take(ctx context.Context) (*runner, error) {
	v.mu.Lock()
	if n := len(v.idle); n > 0 {
		r := v.idle[n-1]
		v.idle = v.idle[:n-1]
		v.mu.Unlock()
		return r, nil
	}
	v.mu.Unlock()
	return v.newRunner(ctx)
}

func (v *Version) give(r *runner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.idle = append(v.idle, r)
}

// runner computes one request at a time: parse ─> lookup ─> session.
type runner struct {
	in       *inputs
	json     pipeline.Processor[*pipeline.Block, *pipeline.Batch]
	examples pipeline.Processor[*pipeline.Block, *pipeline.Batch]
	columns  pipeline.Processor[*pipeline.Batch, *pipeline.Batch]
	lookup   pipeline.Processor[*pipeline.Batch, *trainstep.Prepared]
	session  model.Session
}

// newRunner opens the stages. The first bad example fails a request: the environment has no other policy.
func (v *Version) newRunner(ctx context.Context) (_ *runner, err error) {
	m, env := v.export.Model(), &pipeline.Env{}
	r := &runner{in: v.in, session: m.Graph.NewSession(1)}
	r.session.SetDense(m.Dense)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	open := func(context.Context, *pipeline.Env) (trainstep.Store, error) { return v.export, nil }
	if r.lookup, err = trainstep.NewLookup(m.Graph, open).Unlabelled().Open(ctx, env); err != nil || v.in.recipeErr != nil {
		return r, err
	}
	opts := v.in.recipe
	if r.columns, err = parse.NewColumns(opts).Open(ctx, env); err != nil {
		return nil, err
	}
	opts.Format = parse.JSONL
	if r.json, err = parse.New(opts).Open(ctx, env); err != nil {
		return nil, err
	}
	r.examples, err = parse.New(v.in.records).Open(ctx, env)
	return r, err
}

// close ends the stages and the session.
func (r *runner) close() error {
	var errs []error
	for _, c := range []interface{ Close() error }{r.json, r.examples, r.columns, r.lookup} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	r.session.Close()
	return errors.Join(errs...)
}

// predict computes the predictions of a request.
func (r *runner) predict(ctx context.Context, in *Input) (out [][]float32, err error) {
	score := func(b *pipeline.Batch) error {
		return r.lookup.Process(ctx, b, func(p *trainstep.Prepared) error {
			defer p.Release()
			for _, head := range r.session.Predict(p.Inputs()) {
				out = append(out, append([]float32(nil), head...))
			}
			return nil
		})
	}
	switch in.Form {
	case FormJSON, FormExample:
		b, err := blocks(in.Records)
		if err != nil {
			return nil, err
		}
		stage := r.json
		if in.Form == FormExample {
			stage = r.examples
		}
		err = stage.Process(ctx, b, score)
		return out, err
	case FormColumns:
		b, err := r.in.columns(in)
		if err == nil {
			err = r.columns.Process(ctx, b, score)
		}
		return out, err
	}
	b, err := r.in.parsed(in)
	if err == nil {
		err = score(b)
	}
	return out, err
}
