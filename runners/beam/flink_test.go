package beam_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed/realflink"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
)

// TestFlink runs plans on a real Flink whose workers are in this process.
func TestFlink(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM")
	}
	server := realflink.Start(t)
	service := func() *beam.Service {
		return &beam.Service{Endpoint: server.Endpoint, Environment: beam.Loopback, FlinkREST: server.REST}
	}
	exactly := func(t *testing.T, s *scene) {
		t.Helper()
		for name, n := range s.sizes {
			if got := s.ledger.at[name].Rows; got != int64(n) {
				t.Errorf("split %s: %d of %d rows", name, got, n)
			}
		}
	}
	options := func() beam.Options { return beam.Options{Runner: "flink", Service: service()} }

	t.Run("bounded", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 100, "b": 40, "c": 7})
		o := options()
		o.Workers = 3
		stats, err := s.run(t.Context(), o)
		if err != nil || stats.Rows != 147 || len(stats.Splits) != 3 {
			t.Errorf("%+v, %v", stats, err)
		}
		exactly(t, s)
	})
	t.Run("fails", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 100})
		s.stage.failAt = 60
		if _, err := s.run(t.Context(), options()); !errors.Is(err, errStage) {
			t.Error(err)
		}
	})
	t.Run("unbounded, drained", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 100, "b": 40})
		s.unbounded = true
		o := options()
		o.Service.CheckpointEvery = time.Second
		drain := make(chan struct{})
		o.Drain = drain
		go func() {
			defer close(drain)
			for s.ledger.rows() < 140 && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			for t.Context().Err() == nil {
				jobs, err := server.Jobs(t.Context())
				if err == nil && len(jobs) == 1 {
					if completed, _, err := server.Checkpoints(t.Context(), jobs[0].ID); err == nil && completed >= 3 {
						return
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		stats, err := s.run(t.Context(), o)
		if err != nil || stats.Rows != 140 || !stats.Drained {
			t.Errorf("%+v, %v", stats, err)
		}
		exactly(t, s)
	})
	t.Run("cancelled", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 100})
		s.unbounded = true
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		go func() {
			for s.ledger.rows() < 100 && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			cancel(enough)
		}()
		if _, err := s.run(ctx, options()); !errors.Is(err, enough) {
			t.Error(err)
		}
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) { // an embedded cluster ends with its job
			jobs, err := server.Jobs(t.Context())
			running := false
			for _, j := range jobs {
				running = running || j.State == "RUNNING"
			}
			if err != nil || !running {
				break
			}
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("still there: %+v", jobs)
			}
		}
	})
	t.Run("no job server", func(t *testing.T) {
		s := newScene(t, map[string]int{"a": 100})
		o := options()
		o.Service.Endpoint = "127.0.0.1:1"
		if _, err := s.run(t.Context(), o); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Error(err)
		}
	})
}
