package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/serving/rows"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Recipe gives what a model's parse recipe says, for records that have no labels. job.ServingRecipe is that of the models of jobs.
type Recipe func(*export.Model) (parse.Options, error)

// Params are a model with its parameters, which may change while it is served.
type Params interface {
	Model() *export.Model
	// Reader makes a way to read the parameters, for one goroutine at a time.
	Reader() Reader
	// AsOf is the moment before which everything that training did is read.
	AsOf() time.Time
	Close() error
}

// Reader reads parameters. What is read between Hold and Release, which follows soon, is one state.
type Reader interface {
	trainstep.Store
	Hold()
	Release()
}

// Version is a model that is open. Its methods may overlap, but for Close.
type Version struct {
	params Params
	in     *inputs
	heads  []model.Head
	// classes are the labels of the classes of each head, nil for one that predicts none.
	classes [][]string
	// joins: predictions of an example do not depend on the others of a batch.
	joins bool
	// rowsOnly: it gives rows and predicts nothing.
	rowsOnly bool
	// cores are shared with other versions of a server.
	cores *cores

	mu    sync.Mutex
	idle  []*runner
	spare []*examples
	open  *shared // that requests may still join; nil: none
}

// mapped is an export, whose parameters never change.
type mapped struct{ *native.Export }

// Reader implements [Params].
func (m mapped) Reader() Reader { return m }

// AsOf implements [Params].
func (m mapped) AsOf() time.Time { return m.Model().From.Created }

// Hold implements [Reader].
func (mapped) Hold() {}

// Release implements [Reader].
func (mapped) Release() {}

// Open opens a native export; without a recipe it answers [FormFeatures] alone. Errors: those of [native.Open] and [NewVersion].
func Open(ctx context.Context, dir string, recipe Recipe) (*Version, error) {
	e, err := native.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return NewVersion(ctx, mapped{e}, recipe)
}

// NewVersion makes a version of a model, which is the version's to close, also when there is an error. Errors: what of the graph cannot be served.
func NewVersion(ctx context.Context, params Params, recipe Recipe) (*Version, error) {
	v := describe(params, recipe)
	r, err := v.newRunner(ctx) // what would fail for every request fails here
	if err != nil {
		return nil, errors.Join(err, params.Close())
	}
	v.idle = append(v.idle, r)
	return v, nil
}

// openRows opens a native export for its rows of a part alone, which may be pushed unless push is nil. Errors: those of [native.OpenPart].
func openRows(ctx context.Context, dir string, recipe Recipe, part native.Part, push func(*native.Export) Pushable) (*Version, error) {
	e, err := native.OpenPart(ctx, dir, part)
	if err != nil {
		return nil, err
	}
	var params Params = mapped{e}
	if push != nil {
		params = push(e)
	}
	v := describe(params, recipe)
	v.rowsOnly = true
	return v, nil
}

// elsewhere is an export whose rows are in other processes.
type elsewhere struct{ *rows.Rows }

// Reader implements [Params].
func (e elsewhere) Reader() Reader { return e.Rows.Reader() }

// openModel opens a native export of which the rows are read from row shards. Errors: those of [native.OpenModel], [rows.Client.Open] and [NewVersion].
func openModel(ctx context.Context, name string, number int64, dir string, recipe Recipe, from *rows.Client) (*Version, error) {
	m, manifest, err := native.OpenModel(ctx, dir)
	if err != nil {
		return nil, err
	}
	r, err := from.Open(ctx, name, number, m, manifest)
	if err != nil {
		return nil, err
	}
	return NewVersion(ctx, elsewhere{r}, recipe)
}

// describe makes a version without a runner.
func describe(params Params, recipe Recipe) *Version {
	m := params.Model()
	var opts parse.Options
	var err error
	switch {
	case len(m.Recipe) == 0:
		err = fmt.Errorf("the snapshot does not say how features are made of records; take the signature %s", SignatureFeatures)
	case recipe == nil:
		err = fmt.Errorf("the program gave the server no Recipe, by which features are made of records; take the signature %s, or give it job.ServingRecipe", SignatureFeatures)
	default:
		opts, err = recipe(m)
	}
	v := &Version{cores: newCores(), params: params, in: newInputs(m.Graph.Features(), opts, err), heads: m.Graph.Heads()}
	for _, h := range v.heads {
		v.classes = append(v.classes, h.ClassLabels())
	}
	v.joins = !slices.ContainsFunc(m.Graph.Operators(), func(o graph.Operator) bool { return o.Shape.Kind == graph.PerBatch || o.Shape.Kind == graph.PerPair })
	return v
}

// Model is the model. It belongs to the version.
func (v *Version) Model() *export.Model { return v.params.Model() }

// AsOf is the moment before which everything that training did is read: when the snapshot of an export was taken.
func (v *Version) AsOf() time.Time { return v.params.AsOf() }

// Close gives the memory back. Nothing may be predicted from then on.
func (v *Version) Close() error {
	var errs []error
	for _, r := range v.idle {
		errs = append(errs, r.close())
	}
	v.idle = nil
	return errors.Join(append(errs, v.params.Close())...)
}

// Predict returns the predictions of the examples for each head of the model, [rows, Width], as an evaluation makes them. They are the caller's; out, if not nil, is memory to put
// them in, such as predictions of before: then nothing is allocated for examples of [FormFeatures] once batches have stopped growing. Errors are statuses of gRPC: INVALID_ARGUMENT for
// examples that cannot be used, DATA_LOSS where the disk does not give a row, those of [rows.Reader.Lookup] where rows are elsewhere, INTERNAL.
func (v *Version) Predict(ctx context.Context, in *Input, out [][]float32) ([][]float32, error) {
	x, err := v.read(ctx, in)
	if err != nil {
		return nil, err
	}
	defer v.free(x)
	return v.compute(ctx, x, out)
}

// read makes of a request what the model reads, which the caller gives back by free. Errors: as Predict.
func (v *Version) read(ctx context.Context, in *Input) (*examples, error) {
	if v.rowsOnly {
		return nil, status.Error(codes.FailedPrecondition, "this server is a row shard (--shard): it gives rows to others; ask one that was started with --rows for predictions")
	}
	if in.NumRows() == 0 {
		return nil, invalid("there are no examples to predict")
	}
	if in.Form != FormFeatures && v.in.recipeErr != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%v", v.in.recipeErr)
	}
	x := v.empty()
	var err error
	if in.Form == FormFeatures {
		err = x.addColumns(v.in.features, in)
	} else {
		err = v.with(ctx, func(r *runner) error { return r.parse(ctx, in, x) })
	}
	if err != nil {
		v.free(x)
		return nil, asStatus(err)
	}
	return x, nil
}

// compute predicts, as Predict does.
func (v *Version) compute(ctx context.Context, x *examples, out [][]float32) ([][]float32, error) {
	r, err := v.take(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	whole := false
	defer func() { v.give(r, whole) }()
	heads, err := r.predict(ctx, x)
	whole = true
	if err != nil {
		return nil, asStatus(err)
	}
	out = slices.Grow(out[:0], len(heads))[:len(heads)]
	for i, head := range heads {
		out[i] = append(out[i][:0], head...)
	}
	return out, nil
}

// empty gives memory for examples.
func (v *Version) empty() *examples {
	v.mu.Lock()
	defer v.mu.Unlock()
	var x *examples
	if n := len(v.spare); n > 0 {
		x, v.spare = v.spare[n-1], v.spare[:n-1]
	} else {
		x = &examples{}
	}
	x.begin(v.in.features)
	return x
}

// free takes the memory back.
func (v *Version) free(x *examples) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spare = append(v.spare, x)
}

// with calls use with a runner.
func (v *Version) with(ctx context.Context, use func(*runner) error) error {
	r, err := v.take(ctx)
	if err != nil {
		return err
	}
	whole := false
	defer func() { v.give(r, whole) }()
	err = use(r)
	whole = true
	return err
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

// give takes a runner back. One that is not whole has met a panic: its buffers may be in any state.
func (v *Version) give(r *runner, whole bool) {
	if !whole {
		_ = r.close() // the panic says more
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.idle = append(v.idle, r)
}

// runner does one thing at a time: parse, or number ─> lookup ─> session.
type runner struct {
	v        *Version
	json     pipeline.Processor[*pipeline.Block, *pipeline.Batch]
	examples pipeline.Processor[*pipeline.Block, *pipeline.Batch]
	columns  pipeline.Processor[*pipeline.Batch, *pipeline.Batch]
	session  model.Session
	// What the model reads.
	numbers trainstep.Numbering
	inputs  model.Inputs
	rows    param.Rows
	reader  Reader
	// dense are the dense weights, of a version of them.
	dense   []float32
	version uint64
}

// newRunner opens the stages. The first bad example fails a request: the environment has no other policy.
func (v *Version) newRunner(ctx context.Context) (_ *runner, err error) {
	m, env := v.params.Model(), &pipeline.Env{}
	r := &runner{v: v, session: v.newSession(), reader: v.params.Reader(), dense: make([]float32, m.Graph.Layout().DenseLen())}
	r.session.SetDense(r.dense)
	if v.in.recipeErr != nil {
		return r, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
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
	for _, c := range []interface{ Close() error }{r.json, r.examples, r.columns} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	r.session.Close()
	return errors.Join(errs...)
}

// parse adds the examples of a request.
func (r *runner) parse(ctx context.Context, in *Input, x *examples) error {
	add := func(b *pipeline.Batch) error {
		defer b.Release()
		return x.addParsed(r.v.in.features, b)
	}
	if in.Form == FormColumns {
		b, err := r.v.in.columns(in)
		if err != nil {
			return err
		}
		return r.columns.Process(ctx, b, add)
	}
	b, err := blocks(in.Records)
	if err != nil {
		return err
	}
	stage := r.json
	if in.Form == FormExample {
		stage = r.examples
	}
	return stage.Process(ctx, b, add)
}

// predict computes the predictions of examples, valid until the next call.
func (r *runner) predict(ctx context.Context, x *examples) ([][]float32, error) {
	tables := r.v.params.Model().Graph.Layout().Tables
	in, sparse := &r.inputs, 0
	in.NumRows, in.Dense = x.rows, x.dense
	in.Sparse = slices.Grow(in.Sparse[:0], len(x.sparse))[:len(x.sparse)]
	r.numbers.Begin(len(tables))
	for i := range r.v.in.features {
		f := &r.v.in.features[i]
		if f.Kind != model.Sparse {
			continue
		}
		l, to := &x.sparse[sparse], &in.Sparse[sparse]
		to.Offsets, to.Index = l.offsets, slices.Grow(to.Index[:0], len(l.ids))[:len(l.ids)]
		to.Own = r.numbers.Index(f.Table, to.Index, l.ids)
		sparse++
	}
	r.rows.Keys, r.rows.Values = r.rows.Keys[:0], slices.Grow(r.rows.Values[:0], len(tables))[:len(tables)]
	for t := range tables {
		keys := r.numbers.Keys(t)
		n := len(keys) * tables[t].Dim()
		r.rows.Keys, r.rows.Values[t] = append(r.rows.Keys, keys), slices.Grow(r.rows.Values[t][:0], n)[:n]
	}
	if err := r.fetch(ctx); err != nil {
		return nil, err
	}
	in.Values = r.rows.Values
	return r.v.cores.predict(r.session, in), nil
}

// fetch reads the parameters that a batch needs, of one state.
func (r *runner) fetch(ctx context.Context) (err error) {
	r.reader.Hold()
	defer r.reader.Release()
	version, err := r.reader.Dense(ctx, r.version, r.dense)
	if err != nil || version != r.version {
		r.version = version
		r.session.SetDense(r.dense)
	}
	if err != nil {
		return err
	}
	return r.reader.Lookup(ctx, &r.rows)
}
