package shard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// TestCommitsWaitBehindTheCut: behind a cut that holds streams nothing is applied, of any session, until the cut is ended, another state comes, or it has taken as long as it may;
// lookups are answered meanwhile. The cut itself is that of the marker.
func TestCommitsWaitBehindTheCut(t *testing.T) {
	t.Parallel()
	const long = time.Hour // shards make a minute of it, which is longer than any of this takes
	id := ps.SplitID{Source: "s", Split: "x"}
	for name, x := range map[string]struct {
		hold time.Duration
		end  func(n *shard.Node) error
		want error
	}{
		"ended":                        {long, func(n *shard.Node) error { _, err := n.EndCut(t.Context(), 7, 0); return err }, nil},
		"ended by another coordinator": {long, func(n *shard.Node) error { _, err := n.EndCut(t.Context(), ps.AnyCut, 0); return err }, nil},
		"another cut":                  {long, func(n *shard.Node) error { return n.BeginCut(t.Context(), 8, 8, nil, 0) }, nil},
		"another state":                {long, func(n *shard.Node) error { return n.Load(t.Context(), ps.LoadOptions{Generation: 2}) }, ps.ErrRolledBack},
		"as long as it may":            {200 * time.Millisecond, func(*shard.Node) error { return nil }, nil},
		"not held":                     {0, func(*shard.Node) error { return nil }, nil},
		"below 0":                      {-long, func(*shard.Node) error { return nil }, nil},
	} {
		for _, log := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := shard.Options{Layout: pstest.CountingLayout(), NumShards: 1}
				if log {
					o.Log = &shard.LogOptions{Dir: t.TempDir(), NoSync: true}
				}
				n, trainer := trained(t, o, id)
				at := int64(0)
				stage := func(c ps.Conn) {
					t.Helper()
					u := pstest.CountingUpdate(id.Split, at, at+1, []int64{3})
					at++
					if _, err := c.Stage(t.Context(), nil, 1, u); err != nil {
						t.Fatal(err)
					}
				}
				commit := func() []ps.Control { return []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: at}} }
				stage(trainer)
				if _, err := trainer.Control(t.Context(), commit()); err != nil {
					t.Fatal(err)
				}
				if err := n.BeginCut(t.Context(), 7, 7, []uint64{1}, x.hold); err != nil {
					t.Fatal(err)
				}
				stage(trainer) // staged before the marker and committed behind it
				began := time.Now()
				if _, err := trainer.Control(t.Context(), []ps.Control{{Kind: ps.Marker, Cut: 7}}); err != nil {
					t.Fatal(err)
				}
				st, err := n.AwaitCut(t.Context(), 7)
				if err != nil || st.Progress[id].Position != 1 {
					t.Fatalf("the cut is at %+v: %v", st, err)
				}
				done := make(chan error, 1)
				go func() {
					_, err := trainer.Control(t.Context(), commit())
					done <- err
				}()
				if x.hold > 0 {
					reader, err := n.Connect(t.Context(), 2, 1, "reader")
					if err != nil {
						t.Fatal(err)
					}
					rows := &param.Rows{Keys: [][]int64{{3}}, Values: [][]float32{make([]float32, 1)}}
					for range 3 {
						if _, err := reader.Lookup(t.Context(), nil, rows); err != nil {
							t.Fatal(err)
						}
					}
					select {
					case err := <-done:
						if took := time.Since(began); took < x.hold && x.hold != long || x.hold == long {
							t.Fatalf("a commit behind the cut did not wait: after %v, %v", took, err)
						}
						done <- err
					default:
						if p, err := n.Progress(t.Context()); err == nil && p[id].Position != 1 && time.Since(began) < x.hold {
							t.Errorf("behind the cut %+v was applied: %v", p, err)
						}
					}
				}
				if err := x.end(n); err != nil {
					t.Fatal(err)
				}
				if err := <-done; !errors.Is(err, x.want) {
					t.Fatalf("the commit that waited: %v, want %v", err, x.want)
				}
				if took := time.Since(began); x.hold == 200*time.Millisecond && took < x.hold {
					t.Errorf("it waited for %v, and not %v", took, x.hold)
				}
				if p, err := n.Progress(t.Context()); err != nil || x.want == nil && p[id].Position != 2 {
					t.Errorf("in the end %+v was applied: %v", p, err)
				}
			})
		}
	}
}
