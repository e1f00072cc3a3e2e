package beam_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/sources/memsource"
)

// scenes and trainers are the graphs of the running tests; a recipe's configuration is the name of one.
var scenes, trainers sync.Map

func TestMain(m *testing.M) {
	beam.Register("scene", func(ctx context.Context, config []byte) (*beam.Built, error) {
		s, ok := scenes.Load(string(config))
		if !ok {
			return nil, fmt.Errorf("no scene %q", config)
		}
		return s.(*scene).build(ctx)
	})
	beam.Register("train", func(_ context.Context, config []byte) (*beam.Built, error) {
		r, ok := trainers.Load(string(config))
		if !ok {
			return nil, fmt.Errorf("no trainer %q", config)
		}
		p, err := r.(*trainer).plan()
		return &beam.Built{Plan: p}, err
	})
	beam.Register("plan", func(_ context.Context, config []byte) (*beam.Built, error) {
		p, ok := plans.Load(string(config))
		if !ok {
			return nil, fmt.Errorf("no plan %q", config)
		}
		return &beam.Built{Plan: p.(*pipeline.Plan)}, nil
	})
	beam.Init()
	// Beam leaves an empty file in the temporary directory for each run.
	dir, err := os.MkdirTemp("", "beam")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		panic(err)
	}
	m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
}

// scene is what one test runs: a memory source, a stage and a ledger.
type scene struct {
	t         testing.TB
	sizes     map[string]int
	maxRows   int // of an element
	times     func(split string, row int) int64
	unbounded bool
	stage     stage
	ledger    *ledger
	second    *ledger // of a second segment that reads the same records; nil: there is none
	// exit, if not empty, is the function of [beam.Built] that ends its goroutine; "builder" is the builder itself.
	exit string
	// remote is what the worker builds in the place of stage, when not nil.
	remote *stage

	source         func() *memsource.Source[*pipeline.Block]
	builds, closes atomic.Int64
}

func newScene(t testing.TB, sizes map[string]int) *scene {
	t.Helper()
	s := &scene{t: t, sizes: sizes, maxRows: 3, ledger: newLedger()}
	s.source = sync.OnceValue(s.records)
	scenes.Store(t.Name(), s)
	t.Cleanup(func() {
		scenes.Delete(t.Name())
		if b, c := s.builds.Load(), s.closes.Load(); b != c {
			t.Errorf("%d graphs were built, %d closed", b, c)
		}
		if n := s.ledger.open.Load(); n != 0 {
			t.Errorf("%d writers are open", n)
		}
	})
	return s
}

func (s *scene) recipe() beam.Recipe { return beam.Recipe{Name: "scene", Config: []byte(s.t.Name())} }

// records makes the source, when the test has set all it wants.
func (s *scene) records() *memsource.Source[*pipeline.Block] {
	records := map[string][][]byte{}
	for name, n := range s.sizes {
		records[name] = make([][]byte, n)
		for i := range n {
			records[name][i] = []byte{byte(i)}
		}
	}
	opts := memsource.Options{MaxRows: s.maxRows, Unbounded: s.unbounded}
	if s.times == nil {
		return memsource.Records(records, opts)
	}
	schema, splits := pipeline.BlockSchema(false, true), map[string][]arrow.RecordBatch{}
	for name, payloads := range records {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i, p := range payloads {
			b.Field(0).(*array.BinaryBuilder).Append(p)
			b.Field(1).(*array.Int64Builder).Append(int64(i + 1))
			b.Field(2).(*array.Int64Builder).Append(s.times(name, i))
		}
		splits[name] = append(splits[name], b.NewRecordBatch())
		b.Release()
	}
	src, err := memsource.Blocks(schema, splits, opts)
	if err != nil {
		panic(err)
	}
	return src
}

func (s *scene) graph(st stage) *pipeline.Graph {
	g := pipeline.New("scene")
	in := pipeline.Read(g, "in", pipeline.Source[*pipeline.Block](s.source()))
	mid := pipeline.Prefetch(pipeline.Via(in, "work", pipeline.Stage[*pipeline.Block, *pipeline.Block](st)), "prefetch", 2)
	pipeline.Into(mid, "ledger", pipeline.Sink[*pipeline.Block](s.ledger))
	if s.second != nil {
		in := pipeline.Read(g, "in2", pipeline.Source[*pipeline.Block](s.source()))
		pipeline.Into(in, "ledger2", pipeline.Sink[*pipeline.Block](s.second))
	}
	return g
}

// plan is the submitted plan.
func (s *scene) plan() *pipeline.Plan {
	s.t.Helper()
	p, err := s.graph(s.stage).Plan()
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// build is what a worker does.
func (s *scene) build(context.Context) (*beam.Built, error) {
	st := s.stage
	if s.remote != nil {
		st = *s.remote
	}
	p, err := s.graph(st).Plan()
	if err != nil {
		return nil, err
	}
	s.exits("builder")
	s.builds.Add(1)
	return &beam.Built{
		Plan: p,
		Env: func(w int) *pipeline.Env {
			s.exits("Env")
			return &pipeline.Env{Worker: w, BadRows: &pipeline.SkipBadRows{}}
		},
		Close: func() error { s.closes.Add(1); s.exits("Close"); return nil },
	}, nil
}

// exits ends the goroutine of a function that is to, as t.FailNow does.
func (s *scene) exits(function string) {
	if s.exit == function {
		runtime.Goexit()
	}
}

func (s *scene) run(ctx context.Context, o beam.Options) (pipeline.RunStats, error) {
	s.t.Helper()
	stats, err := beam.Run(ctx, s.recipe(), s.plan(), o)
	if len(stats) != 1 {
		return pipeline.RunStats{}, err
	}
	return stats[0], err
}

// total is the number of rows of the scene.
func (s *scene) total() int64 {
	var n int64
	for _, size := range s.sizes {
		n += int64(size)
	}
	return n
}

// stage hands blocks on, or fails, or panics.
type stage struct {
	label  string
	failAt pipeline.Position // a block that reaches it fails; 0: never
	panics bool
	exits  bool
	gate   chan struct{} // when not nil, each block waits for a receive, or for the context
}

var errStage = errors.New("the stage is broken")

func (s stage) String() string                                 { return "work " + s.label }
func (s stage) Fingerprint() string                            { return s.String() }
func (s stage) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s stage) Open(_ context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Block, *pipeline.Block], error) {
	return processor{s, env}, nil
}

type processor struct {
	s   stage
	env *pipeline.Env
}

func (p processor) Process(ctx context.Context, b *pipeline.Block, emit func(*pipeline.Block) error) error {
	if p.s.gate != nil {
		select {
		case <-p.s.gate:
		case <-ctx.Done():
			b.Release()
			return context.Cause(ctx)
		}
	}
	if p.s.failAt > 0 && b.Origin().To >= p.s.failAt {
		defer b.Release()
		if p.s.panics {
			panic("out of order")
		}
		if p.s.exits {
			runtime.Goexit()
		}
		return errStage
	}
	p.env.LeftOut(b.Origin().ID(), []int64{int64(b.Origin().To)})                                                                               // one of each block, say
	if err := p.env.BadRow(ctx, &pipeline.DataError{Source: b.Origin().Source, Split: b.Origin().Split, Reason: "too long"}, nil); err != nil { // and another
		b.Release()
		return err
	}
	return emit(b)
}
func (processor) Flush(context.Context, func(*pipeline.Block) error) error { return nil }
func (processor) Close() error                                             { return nil }

// ledger is a sink that stores positions as a parameter server does: it resumes, and refuses what does not join.
type ledger struct {
	mu      sync.Mutex
	at      map[string]pipeline.Progress
	origins []string
	resumes int
	workers map[int]bool
	written chan struct{} // a token for each write, when there is room
	open    atomic.Int64  // writers
	most    int64         // writers that were open at once
}

func newLedger() *ledger {
	return &ledger{
		at: map[string]pipeline.Progress{}, workers: map[int]bool{}, written: make(chan struct{}, 1024),
	}
}

func (l *ledger) String() string { return "ledger" }

func (l *ledger) Fingerprint() string { return "ledger" }
func (l *ledger) Open(_ context.Context, env *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers[env.Worker] = true
	l.most = max(l.most, l.open.Add(1))
	return &page{ledger: l}, nil
}

func (l *ledger) rows() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, p := range l.at {
		n += p.Rows
	}
	return n
}

// seen returns the origins in the order of writing.
func (l *ledger) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.origins...)
}

type page struct {
	ledger *ledger
	once   sync.Once
}

func (p *page) Resume(_ context.Context, _ string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumes++
	out := map[string]pipeline.Progress{}
	for _, s := range splits {
		if at, ok := l.at[s.Name]; ok {
			out[s.Name] = at
		}
	}
	return out, nil
}

func (p *page) Write(_ context.Context, b *pipeline.Block) error {
	defer b.Release()
	l, o := p.ledger, b.Origin()
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[o.Split]
	if o.From != at.Position {
		return fmt.Errorf("%s does not join %d", o, at.Position)
	}
	at.Position, at.Rows, at.Batches = o.To, at.Rows+int64(b.NumRows()), at.Batches+1
	l.at[o.Split] = at
	l.origins = append(l.origins, o.String())
	select {
	case l.written <- struct{}{}:
	default:
	}
	return nil
}
func (p *page) Flush(context.Context) error { return nil }
func (p *page) Close() error {
	p.once.Do(func() { p.ledger.open.Add(-1) })
	return nil
}
