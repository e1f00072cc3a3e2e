package pstest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// testEdits edits and trains rows in turns beside plain maps. The editor is another one now and then, and continues from where the one before was.
func (s suite) testEdits(t *testing.T, shards int) {
	t.Parallel()
	j := SmallJob()
	l := j.Layout()
	c := s.must(t, coordinator.Options{Layout: l, NumShards: shards, Dir: t.TempDir(), Precision: param.BF16})
	want := []*MapTable{NewMapTable(l.Tables[0], l.Seed), NewMapTable(l.Tables[1], l.Seed)}
	ctx, r := t.Context(), rand.New(rand.NewPCG(uint64(shards), 8))
	cl := client(t, c, "worker")
	if _, err := cl.Resume(ctx, "s", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	editor, err := cl.Edit(ctx, "request")
	if err != nil {
		t.Fatal(err)
	}
	at, done, owner := int64(0), int64(0), cl
	compare := func() {
		t.Helper()
		for i, w := range want {
			for fid := range int64(60) {
				var a, b table.Rows
				ok, err := c.Row(ctx, i, fid, &a)
				if has := w.Get(fid, &b); err != nil || ok != has || has && !sameRows(&a, &b) {
					t.Fatalf("table %d: row %d is %+v, want %+v: %v", i, fid, a, b, err)
				}
			}
		}
	}
	for range 60 {
		switch r.IntN(4) {
		case 0:
			u := RandomUpdate(l, "x", at, at+3)
			at = u.To
			if err := errors.Join(cl.Push(ctx, u), cl.Flush(ctx)); err != nil {
				t.Fatal(err)
			}
			for i, w := range want { // as they travel
				g := make([]float32, len(u.Grads[i]))
				param.BF16.RoundGradients(g, u.Grads[i])
				w.Apply(table.Update{Keys: u.Keys[i], Counts: u.Counts[i], Grads: g, Time: u.Time, LR: u.LR, Examples: u.Examples})
			}
		case 1:
			owner = client(t, c, "other")
			next, err := owner.Edit(ctx, "request")
			if err != nil {
				t.Fatal(err)
			}
			if err := editor.Apply(ctx, param.Reinitialize, 0, []int64{1}, nil); !errors.Is(err, ps.ErrFenced) {
				t.Fatalf("an editor that was replaced: %v, want ErrFenced", err)
			}
			if editor = next; editor.Done() != done {
				t.Fatalf("%d fids were edited, want %d", editor.Done(), done)
			}
		default:
			tbl := r.IntN(2)
			u := table.Update{Keys: Distinct(r, 1+r.IntN(9), 60)}
			u.Counts = make([]uint32, len(u.Keys))
			MakeEdit(r, l.Tables[tbl], &u) // values of more bits than what travels of gradients
			clear(u.Counts)
			if err := editor.Apply(ctx, u.Op, tbl, u.Keys, u.Grads); err != nil {
				t.Fatal(err)
			}
			done += int64(len(u.Keys))
			want[tbl].Apply(u)
		}
		if r.IntN(6) == 0 {
			compare()
		}
	}
	compare()
	for what, f := range map[string]func() error{
		"training":    func() error { return editor.Apply(ctx, param.Train, 0, []int64{1}, make([]float32, 4)) },
		"no table":    func() error { return editor.Apply(ctx, param.Assign, 2, []int64{1}, make([]float32, 4)) },
		"few values":  func() error { return editor.Apply(ctx, param.Assign, 0, []int64{1}, make([]float32, 3)) },
		"a fid twice": func() error { return editor.Apply(ctx, param.Assign, 0, []int64{1, 1}, make([]float32, 8)) },
		"not a number": func() error {
			return editor.Apply(ctx, param.AssignAdd, 1, []int64{1}, []float32{0, 0, float32(math.NaN())})
		},
		"infinite": func() error {
			return editor.Apply(ctx, param.Assign, 1, []int64{1}, []float32{float32(math.Inf(1)), 0, 0})
		},
		"few of state": func() error { return editor.Apply(ctx, param.AssignState, 1, []int64{1}, make([]float32, 3)) },
		"bad state": func() error {
			values := editValues(r, l.Tables[1], param.AssignState, 1)
			values[len(values)-1] = -1 // the last sum of squares
			return editor.Apply(ctx, param.AssignState, 1, []int64{1}, values)
		},
		"no operation": func() error { return editor.Apply(ctx, param.NumOps, 1, []int64{1}, make([]float32, 3)) },
	} {
		if err := f(); !errors.Is(err, ps.ErrLayout) {
			t.Errorf("%s: %v, want ErrLayout", what, err)
		}
	}
	if err := errors.Join(cl.Close(), owner.Close()); err != nil {
		t.Fatal(err)
	}
	info := take(t, c, ps.SnapshotOptions{})
	if p := info.Positions[ps.EditSource]["request"]; int64(p.Position) != done || p.Rows != 0 || p.Batches != 0 {
		t.Errorf("the snapshot has %+v of the request, want position %d and no examples", p, done)
	}
	if info.Digest != digest(t, c) {
		t.Errorf("the snapshot's digest is %s, that of the shards %s", info.Digest, digest(t, c))
	}
}
