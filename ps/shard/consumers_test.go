package shard_test

import (
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
