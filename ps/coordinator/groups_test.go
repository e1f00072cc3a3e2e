package coordinator_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// TestTwoSources lets workers of two sources train one model: each is given the splits of its own source, leads its own,
// and positions of both lie side by side. Workers of one source must read it in one way.
func TestTwoSources(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	o := coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir()}
	c := mustOpen(t, o)
	join := func(worker, source, plan string, splits ...string) (uint64, error) {
		return c.Join(t.Context(), ps.JoinOptions{Worker: worker, Source: source, Plan: plan, Splits: splits})
	}
	a, err := join("a", "backfill", "p", "x", "y")
	if err != nil {
		t.Fatal(err)
	}
	b, err := join("b", "stream", "q", "x", "z")
	if err != nil {
		t.Fatal(err)
	}
	for member, want := range map[uint64][]string{a: {"x", "y"}, b: {"x", "z"}} {
		got, err := c.Await(t.Context(), member, 0)
		if err != nil || !slices.Equal(got.Splits, want) || !got.Leader || got.Members != 1 {
			t.Errorf("%+v, %v; want the splits %q", got, err, want)
		}
	}
	for what, x := range map[string]struct {
		worker, source, plan string
		want                 []string
	}{
		"another plan":           {"c", "stream", "other", []string{`source "stream"`, "worker b has plan q", "worker c plan other"}},
		"the name of a stranger": {"a", "stream", "q", []string{"worker a", `source "backfill"`, "--worker"}},
	} {
		_, err := join(x.worker, x.source, x.plan)
		for _, want := range x.want {
			if !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	// State of a split is its owner's, in its own source.
	in, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	for of, key := range map[string]string{"source": ps.SourceState("stream", "x"), "stage": ps.StageState("my join", "stream", "x")} {
		if err := c.SetStateAt(t.Context(), a, in.Generation, key, []byte("v")); !errors.Is(err, ps.ErrFenced) {
			t.Errorf("what a %s keeps of another source's split: %v, want ErrFenced", of, err)
		}
		if err := c.SetStateAt(t.Context(), b, in.Generation, key, []byte("v")); err != nil {
			t.Errorf("what a %s keeps of a split, by its owner: %v", of, err)
		}
	}
	for _, source := range []string{"backfill", "stream"} {
		cl, err := c.Client(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Resume(t.Context(), source, []string{"x"}); err != nil {
			t.Fatal(err)
		}
		to := int64(3 + len(source))
		u := pstest.RandomUpdate(l, "x", 0, to)
		u.Source = source
		if err := errors.Join(cl.Push(t.Context(), u), cl.Flush(t.Context()), cl.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, o)
	for source, want := range map[string]int64{"backfill": 11, "stream": 9} {
		if p, err := again.Progress(t.Context(), source); err != nil || int64(p["x"].Position) != want {
			t.Errorf("%s: %v, %v; want %d", source, p, err, want)
		}
	}
	// A member that joins when all of a source have left may read it in another way.
	if last, err := c.Leave(t.Context(), b); err != nil || !last {
		t.Errorf("the last of the stream: %v, %v", last, err)
	}
	if _, err := join("c", "stream", "other", "x"); err != nil {
		t.Error(err)
	}
	if _, err := c.Await(t.Context(), 12345, 0); !errors.Is(err, ps.ErrRejoin) {
		t.Errorf("a member of another coordinator: %v, want ErrRejoin", err)
	}
}

// TestReaders look up and read dense tensors of shards that are trained, and change nothing.
func TestReaders(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	c := mustOpen(t, coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir()})
	teach(t, c, l, 0, 20)
	before := mustDigest(t, c)
	pstest.TestReader(t, c.Reader, l)
	if d := mustDigest(t, c); d != before {
		t.Errorf("digest %s, was %s", d, before)
	}
}
