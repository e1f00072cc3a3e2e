package beam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
)

// checkAll checks that every row of the scene was written once: the ledger takes no element that does not join.
func (s *scene) checkAll(stats pipeline.RunStats, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	if stats.Rows != s.total() || s.ledger.rows() != s.total() || stats.Drained || stats.Full {
		s.t.Errorf("got %+v and %d rows in the ledger, want %d", stats, s.ledger.rows(), s.total())
	}
	for name, n := range s.sizes {
		if got := stats.Splits[pipeline.SplitID{Source: "in", Split: name}]; int(got.Rows) != n || int(got.Position) != n {
			s.t.Errorf("split %s: %+v, want %d rows", name, got, n)
		}
	}
	if got := int64(len(s.ledger.seen())); got != stats.Batches || got != stats.LeftOut || stats.BadRows["too long"] < got {
		s.t.Errorf("%d batches, %d that were left out and bad rows %v in the statistics, %d in the ledger", stats.Batches, stats.LeftOut, stats.BadRows, got)
	}
}

func TestBounded(t *testing.T) {
	for _, c := range []struct {
		workers, want int
		sizes         map[string]int
	}{
		{1, 1, map[string]int{"a": 10}},
		{1, 1, map[string]int{"a": 10, "b": 4, "c": 0}},
		{2, 2, map[string]int{"a": 10, "b": 4, "c": 100}},
		{9, 3, map[string]int{"a": 1, "b": 0, "c": 1}},
		{1, 1, map[string]int{"a": 0}},
	} {
		t.Run(fmt.Sprintf("splits=%d/workers=%d", len(c.sizes), c.workers), func(t *testing.T) {
			s := newScene(t, c.sizes)
			s.checkAll(s.run(t.Context(), beam.Options{Workers: c.workers}))
			if got := len(s.ledger.workers); got != c.want {
				t.Errorf("workers %v, want %d", s.ledger.workers, c.want)
			}
		})
	}
}

// TestBatchMode: a runner that takes no element of a bounded source back gets every row too, also for several splits.
func TestBatchMode(t *testing.T) {
	for _, oneProcess := range []bool{false, true} {
		t.Run(fmt.Sprintf("one=%v", oneProcess), func(t *testing.T) {
			s := newScene(t, map[string]int{"a": 10, "b": 4, "c": 100})
			stats, err := beam.RunAs(t.Context(), s.recipe(), s.plan(), beam.Options{Workers: 2, Renew: time.Millisecond}, false, oneProcess)
			s.checkAll(stats[0], err)
			if want := map[bool]int{false: 3, true: 2}[oneProcess]; len(s.ledger.workers) != want {
				t.Errorf("workers %v, want %d", s.ledger.workers, want)
			}
		})
	}
}

// TestBatchModeFails: the error of an executor within a bundle.
func TestBatchModeFails(t *testing.T) {
	testbed.NoBeamRace(t)
	s := newScene(t, map[string]int{"a": 10, "b": 4})
	s.stage.failAt = 6
	if _, err := beam.RunAs(t.Context(), s.recipe(), s.plan(), beam.Options{}, false, false); !errors.Is(err, errStage) {
		t.Errorf("got %v, want the stage's error", err)
	}
}

// TestExecutorsRunTogether: no block passes before both executors are there, although a bundle runs its elements one
// after the other.
func TestExecutorsRunTogether(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10, "b": 10})
	s.stage.gate = make(chan struct{})
	go func() {
		for s.ledger.open.Load() < 2 { // else the test's time runs out
			runtime.Gosched()
		}
		close(s.stage.gate)
	}()
	s.checkAll(s.run(t.Context(), beam.Options{Workers: 2}))
	if s.ledger.most != 2 {
		t.Errorf("%d writers at once, want 2", s.ledger.most)
	}
}

// TestDeterministicOrder: the sequence of elements is that of the local runner, whatever the number of workers that would
// otherwise share the splits.
func TestDeterministicOrder(t *testing.T) {
	sizes := map[string]int{"a": 20, "b": 7, "c": 31}
	want := newScene(t, sizes)
	if _, err := local.Run(t.Context(), want.plan(), pipeline.RunOptions{Deterministic: true, Env: func(int) *pipeline.Env { return &pipeline.Env{BadRows: &pipeline.SkipBadRows{}} }}); err != nil {
		t.Fatal(err)
	}
	s := newScene(t, sizes)
	s.checkAll(s.run(t.Context(), beam.Options{Deterministic: true}))
	if diff := cmp.Diff(want.ledger.seen(), s.ledger.seen()); diff != "" {
		t.Errorf("order (-local +beam):\n%s", diff)
	}
}

func TestResumes(t *testing.T) {
	s := newScene(t, map[string]int{"a": 20, "b": 7})
	s.ledger.at["a"] = pipeline.Progress{Position: 11, Rows: 11, Batches: 2}
	stats, err := s.run(t.Context(), beam.Options{Workers: 2})
	if err != nil || stats.Resumed != 11 || stats.Rows != 16 || s.ledger.rows() != 27 {
		t.Errorf("got %+v, %v and %d rows in the ledger", stats, err, s.ledger.rows())
	}
}

func TestUnboundedDrains(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10, "b": 40, "c": 7})
	s.unbounded = true
	drain := make(chan struct{})
	go func() {
		for range 4 + 14 + 3 {
			<-s.ledger.written
		}
		close(drain)
	}()
	stats, err := s.run(t.Context(), beam.Options{Workers: 2, Drain: drain})
	if err != nil || !stats.Drained || stats.Full || stats.Rows != s.total() {
		t.Errorf("got %+v, %v, want %d rows and drained", stats, err, s.total())
	}
}

// TestMaxRowsIsShared: an executor with nothing to read ends when the others have taken enough.
func TestMaxRowsIsShared(t *testing.T) {
	s := newScene(t, map[string]int{"a": 40, "b": 2, "c": 40})
	s.unbounded = true
	stats, err := s.run(t.Context(), beam.Options{Workers: 3, MaxRows: 30})
	if err != nil || !stats.Full || stats.Drained || stats.Rows < 30 || stats.Rows >= 30+3*3 { // these elements cannot be cut
		t.Errorf("got %+v, %v, want 30 rows and at most an element a worker more", stats, err)
	}
	if stats.Rows != s.ledger.rows() {
		t.Errorf("%d rows in the ledger", s.ledger.rows())
	}
}

func TestErrorsSurface(t *testing.T) {
	testbed.NoBeamRace(t)
	for _, unbounded := range []bool{false, true} {
		t.Run(fmt.Sprintf("unbounded=%v", unbounded), func(t *testing.T) {
			s := newScene(t, map[string]int{"a": 10, "b": 4})
			s.unbounded, s.stage.failAt = unbounded, 6
			_, err := s.run(t.Context(), beam.Options{Workers: 2})
			if !errors.Is(err, errStage) || !strings.Contains(err.Error(), "work: ") {
				t.Errorf("got %v, want the error of stage work", err)
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 10})
		s.stage.failAt, s.stage.panics = 6, true
		if _, err := s.run(t.Context(), beam.Options{}); err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("got %v, want the panic", err)
		}
	})
	for _, elsewhere := range []bool{false, true} { // executors in other processes, as far as the runner knows
		for what, want := range map[string]string{"stage": "work: runtime.Goexit", "builder": `recipe "scene": runtime.Goexit`, "Env": "RunOptions.Env: runtime.Goexit", "Close": `recipe "scene": Close: runtime.Goexit`} {
			t.Run(fmt.Sprintf("%s exits/elsewhere=%v", what, elsewhere), func(t *testing.T) {
				s := newScene(t, map[string]int{"a": 10})
				s.exit = what
				if what == "stage" {
					s.stage.failAt, s.stage.exits = 6, true
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // not to wait for ever
				defer cancel()
				_, err := beam.RunAs(ctx, s.recipe(), s.plan(), beam.Options{Workers: 2, Renew: time.Millisecond}, false, !elsewhere)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			})
		}
	}
	t.Run("builder", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 10})
		_, err := beam.Run(t.Context(), beam.Recipe{Name: "scene", Config: []byte("none")}, s.plan(), beam.Options{})
		if err == nil || !strings.Contains(err.Error(), `no scene "none"`) {
			t.Errorf("got %v, want the builder's error", err)
		}
	})
}

func TestPlansDiffer(t *testing.T) {
	testbed.NoBeamRace(t)
	s := newScene(t, map[string]int{"a": 10})
	s.remote = &stage{label: "of another version"}
	_, err := s.run(t.Context(), beam.Options{})
	other, perr := s.graph(*s.remote).Plan()
	if perr != nil {
		t.Fatal(perr)
	}
	if !errors.Is(err, beam.ErrPlan) || !strings.Contains(err.Error(), s.plan().Hash()) || !strings.Contains(err.Error(), other.Hash()) {
		t.Errorf("got %v, want ErrPlan with both hashes", err)
	}
	if s.ledger.rows() != 0 {
		t.Errorf("%d rows were written", s.ledger.rows())
	}
}

// TestCancel: the cause comes back, and the executors have ended by then.
func TestCancel(t *testing.T) {
	testbed.NoBeamRace(t)
	cause := errors.New("somebody pulled the plug")
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%v", batch), func(t *testing.T) {
			s := newScene(t, map[string]int{"a": 100, "b": 100})
			s.unbounded = !batch
			ctx, cancel := context.WithCancelCause(t.Context())
			s.stage.gate = make(chan struct{})
			go func() {
				s.stage.gate <- struct{}{}
				s.stage.gate <- struct{}{}
				cancel(cause)
			}()
			_, err := beam.RunAs(ctx, s.recipe(), s.plan(), beam.Options{Workers: 2}, !batch, true)
			if err != cause { //nolint:errorlint // nothing is added to it
				t.Errorf("got %v, want the cause", err)
			}
			if n := s.ledger.open.Load(); n != 0 {
				t.Errorf("%d writers are open", n)
			}
			noneLeft(t)
		})
	}
}

// noneLeft waits until no goroutine is in the segment executor. Those of Beam end a little after the job.
func noneLeft(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<22)
	stacks := string(buf[:runtime.Stack(buf, true)])
	for _, in := range []string{"pipeline.(*Segment).Run", "beam.(*lease).execute", "ProcessElement"} {
		if strings.Contains(stacks, in) {
			t.Errorf("a goroutine is in %s:\n%s", in, stacks)
		}
	}
}

func TestFaults(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10})
	if _, err := beam.Run(t.Context(), beam.Recipe{Name: "nobody"}, s.plan(), beam.Options{}); !errors.Is(err, beam.ErrRecipe) || !strings.Contains(err.Error(), `"scene"`) {
		t.Errorf("unknown recipe: %v", err)
	}
	for name, o := range map[string]beam.Options{
		`no runner "spark"`: {Runner: "spark"}, "workers": {Workers: -1}, "lease": {Lease: -1}, "splits": {Splits: []pipeline.Split{}},
	} {
		if _, err := s.run(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStage)
	if _, err := s.run(ctx, beam.Options{}); !errors.Is(err, errStage) {
		t.Errorf("cancelled before: %v", err)
	}
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name was registered twice")
		}
	}()
	beam.Register("scene", func(context.Context, []byte) (*beam.Built, error) { return nil, nil })
}

func TestIsWorker(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"": false, "train job.yaml": false, "--id=1-1 --provision_endpoint=localhost:1": true, "--id=1-1": false, "train --id=1-1 --provision_endpoint=localhost:1": false,
		"--semi_persist_dir=d --id=1-1 --logging_endpoint=localhost:1 --control_endpoint=localhost:2 --artifact_endpoint=localhost:3 --provision_endpoint=localhost:4": true,
		"--id=1-1 --provision_endpoint=localhost:1 --dir=runs": false,
	} {
		if got := beam.IsWorker(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
}

func TestDeal(t *testing.T) {
	t.Parallel()
	splits := []pipeline.Split{{Name: "c"}, {Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		o   beam.Options
		one bool
		so  [][]string
	}{
		{beam.Options{}, true, [][]string{{"a", "b", "c"}}},
		{beam.Options{Workers: 2}, true, [][]string{{"a", "c"}, {"b"}}},
		{beam.Options{Workers: 2}, false, [][]string{{"a"}, {"b"}, {"c"}}},
		{beam.Options{Workers: 2, Deterministic: true}, false, [][]string{{"a", "b", "c"}}},
	} {
		if diff := cmp.Diff(c.so, beam.Deal(splits, c.o, c.one)); diff != "" {
			t.Errorf("%+v, one process %v (-want +got):\n%s", c.o, c.one, diff)
		}
	}
}

// handler keeps what is logged.
type handler struct {
	mu    sync.Mutex
	seen  map[slog.Level]int
	texts []string // messages, each with the function that logged it
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *handler) WithGroup(string) slog.Handler            { return h }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[r.Level]++
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	h.texts = append(h.texts, frame.Function+": "+r.Message)
	return nil
}

// TestLog: what Beam logs comes to our logger at debug, and what others say to the default logger continues to it.
func TestLog(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10})
	h := &handler{seen: map[slog.Level]int{}}
	s.checkAll(s.run(t.Context(), beam.Options{Logger: slog.New(h)}))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[slog.LevelDebug] == 0 || len(h.seen) != 1 {
		t.Errorf("records by level: %v, want some at debug alone", h.seen)
	}
}

// TestDefaultLoggerStays: a run does not take the process's default logger away from others, nor does it put Beam's log
// into it.
func TestDefaultLoggerStays(t *testing.T) {
	h := &handler{seen: map[slog.Level]int{}}
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(h))
	s := newScene(t, map[string]int{"a": 10})
	s.checkAll(s.run(t.Context(), beam.Options{}))
	slog.Default().Warn("somebody else")
	h.mu.Lock()
	defer h.mu.Unlock()
	others := 0
	for _, text := range h.texts { // ours may warn, of a slow machine for one
		if strings.Contains(text, "apache/beam") {
			t.Errorf("Beam's %q is in the default logger", text)
		}
		if strings.HasSuffix(text, ": somebody else") {
			others++
		}
	}
	if others != 1 {
		t.Errorf("%d records of others of %q, want 1", others, h.texts)
	}
}

// TestSegments runs a plan of two segments, whole and for the splits of one.
func TestSegments(t *testing.T) {
	s := newScene(t, map[string]int{"a": 30, "b": 7})
	s.second = newLedger()
	stats, err := beam.Run(t.Context(), s.recipe(), s.plan(), beam.Options{Workers: 2})
	if err != nil || len(stats) != 2 || stats[0].Rows != 37 || stats[1].Rows != 37 || s.ledger.rows() != 37 || s.second.rows() != 37 {
		t.Fatalf("%+v, %d and %d rows written, %v", stats, s.ledger.rows(), s.second.rows(), err)
	}
	if p := stats[1].Splits[pipeline.SplitID{Source: "in2", Split: "a"}]; p.Position != 30 || len(stats[1].Splits) != 2 {
		t.Errorf("splits of the second segment: %v", stats[1].Splits)
	}
	s.ledger, s.second = newLedger(), newLedger()
	stats, err = beam.Run(t.Context(), s.recipe(), s.plan(), beam.Options{Splits: []pipeline.Split{{Source: "in2", Name: "b", End: 7}}})
	if err != nil || len(stats) != 2 || stats[0].Rows != 0 || stats[1].Rows != 7 || s.ledger.rows() != 0 || s.second.rows() != 7 {
		t.Errorf("%+v, %d and %d rows written, %v", stats, s.ledger.rows(), s.second.rows(), err)
	}
	if _, err := beam.Run(t.Context(), s.recipe(), s.plan(), beam.Options{Splits: []pipeline.Split{{Name: "b"}}}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("splits of no segment: %v", err)
	}
}
