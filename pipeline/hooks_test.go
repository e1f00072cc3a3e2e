package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

type heard struct{ log *[]string }

// lags is notified of one event, all of all and of one that pipeline does not know.
type lags heard

func (l lags) Lag(_, split string, n int64) { *l.log = append(*l.log, fmt.Sprint("lags ", split, n)) }

type everything struct{ lags }

func (e everything) note(what string)                         { *e.log = append(*e.log, what) }
func (e everything) Lag(string, string, int64)                { e.note("lag") }
func (e everything) RowsRead(string, string, int)             { e.note("read") }
func (e everything) RowDropped(string, string, int64)         { e.note("dropped") }
func (e everything) RecordsLost(string, string, int64, int64) { e.note("lost") }
func (e everything) StageDone(string, int, time.Duration)     { e.note("done") }
func (e everything) QueueLen(string, int, int)                { e.note("len") }
func (e everything) QueueWait(string, string, time.Duration)  { e.note("wait") }
func (e everything) Blinked(times int)                        { e.note(fmt.Sprint("blinked ", times)) }

type blinkHook interface{ Blinked(times int) }

// TestHooks: each event reaches those who implement it, in their order, and no others; no hooks are hooks.
func TestHooks(t *testing.T) {
	t.Parallel()
	var log []string
	fire := func(h *pipeline.Hooks) {
		h.RowsRead("s", "a", 1)
		h.Lag("s", "a", 7)
		h.RowDropped("s", "bad", 1)
		h.RecordsLost("s", "a", 1, 2)
		h.StageDone("x", 1, 0)
		h.QueueLen("q", 1, 2)
		h.QueueWait("q", "put", 0)
		for _, b := range pipeline.HooksOf[blinkHook](h) {
			b.Blinked(3)
		}
	}
	fire(nil)
	fire(pipeline.NewHooks())
	fire(pipeline.NewHooks(lags{&log}, "no hook at all", everything{lags{&log}}))
	want := []string{"read", "lags a7", "lag", "dropped", "lost", "done", "len", "wait", "blinked 3"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
