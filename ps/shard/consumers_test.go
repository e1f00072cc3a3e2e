package shard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// TestForgottenTooLate: the timer of a consumer that has left, and goes off while another of its name is there, leaves that one alone.
func TestForgottenTooLate(t *testing.T) {
	t.Parallel()
	n, err := shard.Open(t.Context(), shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, ConsumerIdle: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	ask := func(r ps.ChangesRequest) *ps.Changes {
		t.Helper()
		r.Consumer = "sync"
		a, err := n.ChangesFor(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := ask(ps.ChangesRequest{})
	late := n.ForgetLater("sync")
	ask(ps.ChangesRequest{Drop: true})
	second := ask(ps.ChangesRequest{})
	if second.Stream == first.Stream {
		t.Fatal("the consumer was not another one")
	}
	late()
	if third := ask(ps.ChangesRequest{Stream: second.Stream, Seq: second.Seq}); third.Stream != second.Stream {
		t.Error("it was forgotten by the timer of the one before")
	}
	n.ForgetLater("sync")()
	if fourth := ask(ps.ChangesRequest{Stream: second.Stream, Seq: second.Seq}); fourth.Stream == second.Stream {
		t.Error("its own timer does not forget it")
	}
}

// TestLostAnswersComeAgain: an answer that the consumer asks for again is the same, so that no rows are left out.
func TestLostAnswersComeAgain(t *testing.T) {
	t.Parallel()
	n, conn := trained(t, shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, ConsumerIdle: time.Hour}, ps.SplitID{Source: "s", Split: "x"})
	const rows = 20_000 // several answers
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	if _, err := conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, ids)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: 1}}); err != nil {
		t.Fatal(err)
	}
	ask := func(r ps.ChangesRequest) *ps.Changes {
		t.Helper()
		r.Consumer, r.Rows = "sync", true
		a, err := n.ChangesFor(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var got []int64
	answers := 0
	for at := (ps.ChangesRequest{}); ; answers++ {
		a := ask(at)
		if at.Seq > 0 {
			again := ask(at)
			if again.Seq != a.Seq || !slices.Equal(again.Rows.Keys, a.Rows.Keys) || again.Whole != a.Whole {
				t.Fatalf("answer %d has %d rows, and %d when it is asked for again, as answer %d", a.Seq, len(a.Rows.Keys), len(again.Rows.Keys), again.Seq)
			}
		}
		got = append(got, a.Rows.Keys...)
		if a.Whole {
			break
		}
		at = ps.ChangesRequest{Stream: a.Stream, Seq: a.Seq}
	}
	slices.Sort(got)
	if answers < 2 || !slices.Equal(got, ids) {
		t.Errorf("%d answers with %d rows, want several with %d", answers, len(got), rows)
	}
}
