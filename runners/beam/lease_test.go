package beam_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
)

// elements makes the elements of the scene's run, as a worker in another process gets them.
func (s *scene) elements(o beam.Options) []*beam.Element {
	s.t.Helper()
	var splits []pipeline.Split
	for name, n := range s.sizes {
		end := pipeline.Position(n)
		if s.unbounded {
			end = pipeline.NoPosition
		}
		splits = append(splits, pipeline.Split{Name: name, End: end})
	}
	es, err := beam.Elements(s.recipe(), s.plan(), splits, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return es
}

// bundle processes an element once.
func bundle(t *testing.T, e *beam.Element) (ended bool) {
	t.Helper()
	ended, err := e.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ended
}

// drained truncates an element and processes it to its end.
func drained(t *testing.T, e *beam.Element) {
	t.Helper()
	if err := e.Truncate(); err != nil {
		t.Fatal(err)
	}
	if !bundle(t, e) {
		t.Error("a truncated element continues")
	}
}

func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 10})
		s.unbounded = true
		e := s.elements(beam.Options{Lease: 10 * time.Second})[0]
		for range 5 {
			bundle(t, e)
			time.Sleep(9 * time.Second) // a bundle that comes in time keeps the executor
		}
		if s.ledger.resumes != 1 || s.ledger.rows() != 10 {
			t.Errorf("%d executors, %d rows, want 1 and 10", s.ledger.resumes, s.ledger.rows())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := s.ledger.open.Load(); n != 0 || s.closes.Load() != 1 {
			t.Errorf("%d writers open, graph closed %d times, want none and once", n, s.closes.Load())
		}
		// The element comes back: another executor continues.
		bundle(t, e)
		synctest.Wait()
		if s.ledger.resumes != 2 || s.ledger.open.Load() != 1 {
			t.Errorf("%d executors, %d open, want 2 and 1", s.ledger.resumes, s.ledger.open.Load())
		}
		drained(t, e)
		if !e.Stats.Drained || e.Stats.Resumed != 10 {
			t.Errorf("stats %+v", e.Stats)
		}
	})
}

// TestExpiredWithinABundle: an executor that ended for want of a bundle, noticed by the bundle that came at last, is
// no failure.
func TestExpiredWithinABundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 10})
		s.unbounded = true
		e := s.elements(beam.Options{})[0]
		bundle(t, e)
		synctest.Wait()
		if err := e.Expire(); err != nil {
			t.Fatal(err)
		}
		if bundle(t, e) {
			t.Error("the element ended")
		}
		bundle(t, e)
		synctest.Wait()
		if s.ledger.resumes != 2 || s.ledger.rows() != 10 {
			t.Errorf("%d executors, %d rows, want 2 and 10", s.ledger.resumes, s.ledger.rows())
		}
		drained(t, e)
	})
}

// TestTruncatedWithoutExecutor: an element that a runner drains where no executor of it lives starts none.
func TestTruncatedWithoutExecutor(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10})
	s.unbounded = true
	drained(t, s.elements(beam.Options{})[0])
	if s.ledger.resumes != 0 {
		t.Error("an executor was started")
	}
}

// TestRestriction: the restriction follows the shards, whether it was behind or ahead of them.
func TestRestriction(t *testing.T) {
	for name, c := range map[string]struct{ start, applied int64 }{
		"fresh": {0, 0}, "stale": {2, 8}, "ahead": {9, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, map[string]int{"a": 20})
				s.unbounded = true
				s.ledger.at["a"] = pipeline.Progress{Position: pipeline.Position(c.applied), Rows: c.applied}
				s.stage.gate = make(chan struct{})
				e := s.elements(beam.Options{})[0]
				if e.Rest.Start != 0 || e.Rest.End != math.MaxInt64 {
					t.Errorf("restriction %+v, want one without an end", e.Rest)
				}
				e.Rest.Start = c.start
				bundle(t, e)
				bundle(t, e)
				if want := max(c.start, c.applied); e.Rest.Start != want {
					t.Errorf("restriction continues at %d, want %d", e.Rest.Start, want)
				}
				close(s.stage.gate)
				bundle(t, e)
				bundle(t, e)
				if e.Rest.Start != 20 || s.ledger.rows() != 20 {
					t.Errorf("restriction continues at %d, %d rows, want 20", e.Rest.Start, s.ledger.rows())
				}
				drained(t, e)
			})
		})
	}
}

// TestBoundedRestriction: the flush is a unit of its own, so an executor at the end of its data is not yet done.
func TestBoundedRestriction(t *testing.T) {
	s := newScene(t, map[string]int{"a": 10})
	e := s.elements(beam.Options{})[0]
	if e.Rest.Start != 0 || e.Rest.End != 11 {
		t.Errorf("restriction %+v, want [0,11)", e.Rest)
	}
	for n := 0; !bundle(t, e); n++ {
		if n == 1000 {
			t.Fatal("no end")
		}
	}
	if e.Stats.Rows != 10 {
		t.Errorf("stats %+v", e.Stats)
	}
}

// TestExecutorErrorComesOnce: the error is that of the next bundle; a runner that tries again gets another executor.
func TestExecutorErrorComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 10})
		s.unbounded, s.stage.failAt = true, 6
		e := s.elements(beam.Options{})[0]
		for range 2 {
			bundle(t, e)
			synctest.Wait()
			if _, err := e.Process(t.Context()); !errors.Is(err, errStage) {
				t.Errorf("got %v, want the stage's error", err)
			}
		}
		if s.ledger.resumes != 2 || s.builds.Load() != 2 {
			t.Errorf("%d executors, %d graphs, want 2", s.ledger.resumes, s.builds.Load())
		}
	})
}

// TestSharedWait: bundles of several elements that a runner processes one after the other renew all leases in time.
func TestSharedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
		s.unbounded = true
		es := s.elements(beam.Options{Workers: 4, Renew: time.Second, Lease: 20 * time.Second})
		round := func() time.Duration {
			begin := time.Now()
			for _, e := range es {
				bundle(t, e)
			}
			return time.Since(begin)
		}
		if d := round(); d != 0 {
			t.Errorf("starting four executors took %v", d)
		}
		synctest.Wait()
		if d := round(); d != time.Second {
			t.Errorf("a round of four took %v, want the renewal period", d)
		}
		if d := round(); d != 5*time.Second {
			t.Errorf("a round without news took %v, want five periods", d)
		}
		for _, e := range es {
			drained(t, e)
		}
	})
}

// TestWatermark: the watermark is the time up to which every split of the element is done, and never goes back.
func TestWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 3, "b": 6})
		s.unbounded, s.maxRows, s.stage.gate = true, 3, make(chan struct{})
		base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s.times = func(split string, row int) int64 {
			at := base.Add(time.Duration(row) * time.Minute)
			if split == "a" {
				at = at.Add(4 * time.Minute) // rows at 4, 5 and 6 minutes
			}
			return at.UnixMicro()
		}
		e := s.elements(beam.Options{})[0]
		bundle(t, e)
		bundle(t, e)
		if w := e.Watermark(); w.Year() > 0 {
			t.Errorf("watermark %v before anything was done", w)
		}
		s.stage.gate <- struct{}{} // one block of each split, in either order
		s.stage.gate <- struct{}{}
		synctest.Wait()
		bundle(t, e)
		if w := e.Watermark(); !w.Equal(base.Add(2 * time.Minute)) {
			t.Errorf("watermark %v, want the third row of b", w)
		}
		s.stage.gate <- struct{}{}
		synctest.Wait()
		bundle(t, e)
		if w := e.Watermark(); !w.Equal(base.Add(5 * time.Minute)) {
			t.Errorf("watermark %v, want the last row of b", w)
		}
		drained(t, e)
		if w := e.Watermark(); !w.Equal(base.Add(5 * time.Minute)) {
			t.Errorf("watermark %v in the end", w)
		}
	})
}

// FuzzDecodeTask: a task from the wire is refused or can be run.
func FuzzDecodeTask(f *testing.F) {
	f.Add([]byte(`{"Index":1,"Worker":1,"Lanes":1,"Splits":[{"Name":"a","Start":3,"End":9}]}`))
	f.Add([]byte(`{"Lanes":2,"Splits":[{"Name":"a","End":-1},{"Name":"b","End":9223372036854775807}]}`))
	f.Add([]byte(`{"Lanes":1,"Splits":[{"Name":"a","Start":-5,"End":9223372036854775807}]}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		start, end, err := beam.DecodeTask(b)
		if err == nil && (start < 0 || end < start) {
			t.Errorf("%q: restriction [%d,%d)", b, start, end)
		}
	})
}
