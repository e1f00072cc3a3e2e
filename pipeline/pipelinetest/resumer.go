package pipelinetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
)

// ResumerHarness is what [TestResumer] needs to know of a sink whose writers are [pipeline.Resumer]s.
type ResumerHarness[T pipeline.Element] struct {
	// New makes the sink; every call writes to the same place, which is empty at first. Writers need not write by themselves
	// before they are asked to, but may.
	New func(t *testing.T) pipeline.Sink[T]
	// Make makes the element [from, to) of a split of the source "test": a row for each position, whose value is from, from+1
	// and so on to to-1, ending at the position after it.
	Make func(t *testing.T, mem memory.Allocator, split string, from, to pipeline.Position) T
	// Stored reads the values that a reader finds of each split, in order.
	Stored func(t *testing.T) map[string][]int64
	// Fences reports whether an earlier owner of a split always fails, at the latest when it flushes. Otherwise one of two owners
	// fails with [pipeline.ErrFenced], whichever is later.
	Fences bool
	// Lives is how many writers follow each other; default 40. Seed draws what they do.
	Lives int
	Seed  uint64
}

const (
	resumerRows   = 300
	resumerSource = "test"
)

var resumerSplits = []pipeline.Split{{Name: "a", End: resumerRows}, {Name: "some/path b.x", End: resumerRows}}

// TestResumer runs the conformance suite of sinks that store positions. Writers follow each other; each continues where what is
// stored ends, with elements of other sizes, and ends without a word, or closed, or flushed. Some of those that are thought
// to be dead continue writing. Whenever a writer resumes, its positions are the ends of what a reader finds, no more and no less,
// and in the end each row is there once.
func TestResumer[T pipeline.Element](t *testing.T, h ResumerHarness[T]) {
	if h.Lives == 0 {
		h.Lives = 40
	}
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	r := &resumerTest[T]{t: t, h: h, mem: mem, rng: rand.New(rand.NewPCG(h.Seed, 1))}
	for range h.Lives {
		r.life(false)
	}
	for tries := 0; !r.life(true); tries++ {
		if tries > 10 {
			t.Fatal("the last writers were fenced again and again")
		}
	}
	stored := h.Stored(t)
	for _, sp := range resumerSplits {
		r.checkRows(stored[sp.Name], sp.Name, resumerRows)
	}
	for _, l := range r.lives {
		if err := errors.Join(l.w.Close(), l.w.Close()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if r.resumed == 0 || r.zombies == 0 {
		t.Errorf("%d writers found something stored, %d went on after they had been succeeded: that tests nothing", r.resumed, r.zombies)
	}
	if h.Fences && r.zombies != r.fenced {
		t.Errorf("%d writers went on after they had been succeeded, %d of them were fenced", r.zombies, r.fenced)
	}
}

type resumerTest[T pipeline.Element] struct {
	t     *testing.T
	h     ResumerHarness[T]
	mem   memory.Allocator
	rng   *rand.Rand
	lives []*resumerLife[T] // that may still write
	// resumed lives found something stored, zombies wrote after they were succeeded, fenced were refused then.
	resumed, zombies, fenced int
}

// resumerLife is a writer and how far it has written.
type resumerLife[T pipeline.Element] struct {
	w  pipeline.Writer[T]
	at map[string]pipeline.Position
}

// life opens a writer, resumes, and writes for a while, or to the end. It returns false when the writer was fenced.
func (r *resumerTest[T]) life(toTheEnd bool) bool {
	t := r.t
	t.Helper()
	w, err := r.h.New(t).Open(t.Context(), &pipeline.Env{Source: resumerSource, Allocator: r.mem})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	l := &resumerLife[T]{w: w, at: map[string]pipeline.Position{}}
	older := r.lives
	r.lives = append(r.lives, l)
	res, ok := w.(pipeline.Resumer)
	if !ok {
		t.Fatalf("%T is no pipeline.Resumer", w)
	}
	progress, err := res.Resume(t.Context(), resumerSource, resumerSplits)
	if err != nil {
		t.Fatalf("Resume: %v", err)
	}
	stored := r.h.Stored(t)
	for _, sp := range resumerSplits {
		p, ok := progress[sp.Name]
		if !ok || p.Position == pipeline.NoPosition {
			p = pipeline.Progress{}
		} else {
			r.resumed++
		}
		r.checkRows(stored[sp.Name], sp.Name, p.Position)
		if p.Rows != int64(p.Position) {
			t.Fatalf("split %s: %d rows up to position %d", sp.Name, p.Rows, p.Position)
		}
		l.at[sp.Name] = p.Position
	}
	if len(older) > 0 && r.rng.IntN(2) == 0 && !toTheEnd { // one that is thought to be dead continues
		old := older[r.rng.IntN(len(older))]
		if wrote, err := r.write(old, 1+r.rng.IntN(4)); wrote {
			r.zombies++
			if err = errors.Join(err, old.w.Flush(t.Context())); errors.Is(err, pipeline.ErrFenced) {
				r.fenced++
			} else if err != nil {
				t.Fatalf("an earlier owner: %v", err)
			}
			r.end(old)
		}
	}
	steps := r.rng.IntN(12)
	if toTheEnd {
		steps = 1 << 20
	}
	if _, err = r.write(l, steps); err == nil && (toTheEnd || r.rng.IntN(3) > 0) {
		err = w.Flush(t.Context())
	}
	switch {
	case errors.Is(err, pipeline.ErrFenced) && !r.h.Fences:
		r.end(l)
		return false
	case err != nil:
		t.Fatalf("write: %v", err)
	}
	if r.rng.IntN(3) == 0 { // otherwise it ends as a process does that is killed
		r.end(l)
	}
	return true
}

func (r *resumerTest[T]) end(l *resumerLife[T]) {
	if err := l.w.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	for i, other := range r.lives {
		if other == l {
			r.lives = append(r.lives[:i:i], r.lives[i+1:]...)
			return
		}
	}
}

// write writes elements of random sizes, with an idle call now and then. wrote: there was something to write.
func (r *resumerTest[T]) write(l *resumerLife[T], elements int) (wrote bool, err error) {
	idler, _ := l.w.(pipeline.Idler)
	for range elements {
		sp := resumerSplits[r.rng.IntN(len(resumerSplits))].Name
		from := l.at[sp]
		if from == resumerRows {
			if l.at[resumerSplits[0].Name] == resumerRows && l.at[resumerSplits[1].Name] == resumerRows {
				return wrote, nil
			}
			continue
		}
		to := min(from+pipeline.Position(1+r.rng.IntN(20)), resumerRows)
		if err := l.w.Write(r.t.Context(), r.h.Make(r.t, r.mem, sp, from, to)); err != nil {
			return true, err
		}
		wrote, l.at[sp] = true, to
		if idler != nil && r.rng.IntN(8) == 0 {
			if err := idler.Idle(r.t.Context()); err != nil {
				return true, err
			}
		}
	}
	return wrote, nil
}

func (r *resumerTest[T]) checkRows(got []int64, split string, to pipeline.Position) {
	r.t.Helper()
	if diff := inOrder(got, to); diff != "" {
		r.t.Fatalf("split %s is stored up to position %d, but a reader finds %s", split, to, diff)
	}
}

// inOrder says where values are not 0, 1 and so on to n-1.
func inOrder(got []int64, n pipeline.Position) string {
	for i, v := range got {
		if v != int64(i) {
			return fmt.Sprintf("%d where %d belongs, in row %d of %d", v, i, i, len(got))
		}
	}
	if len(got) != int(n) {
		return fmt.Sprintf("%d rows", len(got))
	}
	return ""
}
