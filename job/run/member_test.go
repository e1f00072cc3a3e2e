package run

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/ps"
)

// restarted are the shards of a coordinator that is started again: it does not know member 1 any more, and joining as member 2 takes as long as it is away.
type restarted struct {
	shards
	joining, back, asked chan struct{}

	mu    sync.Mutex
	joins []ps.JoinOptions
	known []ps.Report // of member 2
}

func (s *restarted) Join(_ context.Context, o ps.JoinOptions) (uint64, error) {
	s.mu.Lock()
	s.joins = append(s.joins, o)
	n := len(s.joins)
	s.mu.Unlock()
	if n == 2 {
		close(s.joining)
		<-s.back
	}
	return uint64(n), nil
}

func (s *restarted) Await(ctx context.Context, member, _ uint64) (ps.Assignment, error) {
	if member == 1 {
		return ps.Assignment{}, ps.ErrRejoin
	}
	close(s.asked)
	<-ctx.Done()
	return ps.Assignment{}, context.Cause(ctx)
}

func (s *restarted) Report(_ context.Context, member uint64, r ps.Report) error {
	if member == 1 {
		return ps.ErrRejoin
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = append(s.known, r)
	return nil
}

// TestReportsWhileJoiningAgain: what a run says while it joins a coordinator that is started again is known to the new one before the run asks what to do; a run that had ended its splits meanwhile would
// wait for ever otherwise.
func TestReportsWhileJoiningAgain(t *testing.T) {
	t.Parallel()
	s := &restarted{joining: make(chan struct{}), back: make(chan struct{}), asked: make(chan struct{})}
	m, err := enrol(t.Context(), s, ps.JoinOptions{Worker: "w", Splits: []string{"a"}}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	<-s.joining
	for _, err := range []error{
		m.tell(t.Context(), ps.Report{Generation: 7, Owned: []string{"a"}, Done: []string{"a"}}), m.delegate(t.Context(), "run", ps.Drain), m.grown(t.Context(), []string{"b"}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	close(s.back)
	<-s.asked
	s.mu.Lock()
	defer s.mu.Unlock()
	has := func(what string, is func(ps.Report) bool) {
		if !slices.ContainsFunc(s.known, is) {
			t.Errorf("%s is not reported to the new coordinator: %+v", what, s.known)
		}
	}
	has("that the split is done", func(r ps.Report) bool { return r.Generation == 7 && slices.Equal(r.Done, []string{"a"}) })
	has("the delegation", func(r ps.Report) bool {
		return r.Delegates != nil && r.Delegates.Run == "run" && r.Delegates.Ending == ps.Drain
	})
	has("the new split", func(r ps.Report) bool { return slices.Equal(r.Splits, []string{"b"}) })
}
