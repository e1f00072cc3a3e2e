package metric_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
)

// row is one example of a head, for the slow reference of a collection.
type row struct {
	p, y, w float32
	key     string
}

// TestCollection compares with lists of rows, cut by loops.
func TestCollection(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	for round := range 100 {
		var c metric.Collection
		heads := make([][]row, 2)
		weighted := false
		for range rng.IntN(5) {
			rows := rng.IntN(30)
			b := &score.Batch{Rows: rows, Keys: make([]score.Key, 2)}
			if rng.IntN(3) == 0 {
				for range rows {
					b.Weights = append(b.Weights, float32(rng.IntN(3)))
				}
			}
			weighted = weighted || b.Weights != nil && rows > 0
			for range rows {
				b.Keys[0].Append([]byte("x"))
				b.Keys[1].Append(fmt.Append(nil, "v", min(rng.IntN(8), rng.IntN(8))))
			}
			for h := range heads {
				head := score.Head{Width: 1, NumLabels: 1}
				masked := rng.IntN(2) == 0
				for r := range rows {
					p, y := rng.Float32(), float32(rng.IntN(2))
					head.Predictions, head.Labels = append(head.Predictions, p), append(head.Labels, y)
					counts := !masked || rng.IntN(3) > 0
					if masked {
						head.Mask = append(head.Mask, counts)
					}
					if counts {
						w := float32(1)
						if b.Weights != nil {
							w = b.Weights[r]
						}
						heads[h] = append(heads[h], row{p, y, w, string(b.Keys[1].Value(r))})
					}
				}
				b.Heads = append(b.Heads, head)
			}
			c.Add(metric.Place{From: int64(c.Rows())}, b)
		}
		if c.Rows() == 0 {
			if s := c.Set(0, -1); s.Len() != 0 || len(c.Slices(0, []int{1}, -1, 3)) != 0 {
				t.Fatal("an empty collection has examples")
			}
			continue
		}
		for h, want := range heads {
			set := func(keep func(row) bool) (s metric.Set) {
				for _, r := range want {
					if keep(r) {
						s.Predictions, s.Labels, s.Weights = append(s.Predictions, r.p), append(s.Labels, r.y), append(s.Weights, r.w)
					}
				}
				if !weighted {
					s.Weights = nil
				}
				return s
			}
			got := c.Set(h, 1)
			same := func(what string, got, want metric.Set) {
				t.Helper()
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(metric.Set{}), cmpopts.IgnoreFields(metric.Set{}, "Groups", "NumGroups", "IDs", "GroupIDs"), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("round %d, head %d, %s (-want +got):\n%s", round, h, what, diff)
				}
			}
			same("all", got, set(func(row) bool { return true }))
			for i, r := range want {
				for k, o := range want {
					if (got.Groups[i] == got.Groups[k]) != (r.key == o.key) {
						t.Fatalf("rows %d and %d, of %q and %q, have groups %d and %d", i, k, r.key, o.key, got.Groups[i], got.Groups[k])
					}
				}
			}
			counts := map[string]int{}
			for _, r := range want {
				counts[r.key]++
			}
			named := map[string]bool{}
			slicesOf := c.Slices(h, []int{1}, -1, 3)
			if got.IDs != nil || slicesOf[0].Set.IDs != nil {
				t.Fatal("examples are identified although nobody asks")
			}
			for i, s := range slicesOf {
				if s.Rest > 0 {
					if i != 3 || s.Rest != len(counts)-3 {
						t.Fatalf("slice %d is of %d other values, there are %d", i, s.Rest, len(counts))
					}
					same("the rest", s.Set, set(func(r row) bool { return !named[r.key] }))
					continue
				}
				named[s.Values[0]] = true
				same(s.Values[0], s.Set, set(func(r row) bool { return r.key == s.Values[0] }))
				if i > 0 && s.Set.Len() > slicesOf[i-1].Set.Len() {
					t.Fatalf("slice %q of %d examples comes behind %q of %d", s.Values[0], s.Set.Len(), slicesOf[i-1].Values[0], slicesOf[i-1].Set.Len())
				}
			}
			if want := min(len(counts), 4); len(slicesOf) != want {
				t.Fatalf("%d slices, want %d", len(slicesOf), want)
			}
		}
		if b := c.Batch(); b.Rows != c.Rows() || len(b.Heads) != 2 || !slices.Equal(b.Heads[0].Predictions, c.Batch().Heads[0].Predictions) {
			t.Fatalf("a batch of %d rows", b.Rows)
		}
	}
}

// TestArrangedCollections puts the batches of three splits together in random orders: every figure is the same to the last bit,
// whole and by crosses of two keys, which are compared with loops.
func TestArrangedCollections(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 5))
	type batch struct {
		at metric.Place
		b  *score.Batch
	}
	var batches []batch
	for split, n := range []int{7, 1, 4} {
		from := int64(0)
		for range n {
			b := &score.Batch{Rows: 1 + rng.IntN(40), Keys: make([]score.Key, 2)}
			h := score.Head{Width: 1, NumLabels: 1}
			var positions []int64
			for range b.Rows {
				from += 1 + rng.Int64N(3)
				positions = append(positions, from)
				h.Predictions, h.Labels = append(h.Predictions, float32(rng.IntN(200))/200), append(h.Labels, float32(rng.IntN(2)))
				h.Mask, b.Weights = append(h.Mask, rng.IntN(9) > 0), append(b.Weights, rng.Float32())
				b.Keys[0].Append(fmt.Append(nil, "a", rng.IntN(3)))
				b.Keys[1].Append(fmt.Append(nil, "b", rng.IntN(3)))
			}
			b.Heads = []score.Head{h}
			batches = append(batches, batch{metric.Place{Split: fmt.Sprint(split), From: positions[0] - 1, Positions: positions}, b})
		}
	}
	figures := func(c *metric.Collection) (out []float64) {
		var w metric.Workspace
		sets := []metric.Set{c.Set(0, 0)}
		for _, s := range c.Slices(0, []int{0, 1}, -1, 4) {
			sets = append(sets, s.Set)
		}
		for i := range sets {
			for _, m := range metric.All() {
				if v := m.Compute(&w, &sets[i]); !m.Grouped || i == 0 {
					out = append(out, v)
				}
			}
			replicates, err := sets[i].Bootstrap(t.Context(), []metric.Metric{find(t, "auc"), find(t, "log_loss")}, 5, 1, 1+rng.IntN(3))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Concat(replicates...)...)
		}
		return out
	}
	var want []float64
	var first *metric.Collection
	for range 20 {
		var c metric.Collection
		c.Identify()
		for _, b := range batches {
			c.Add(b.at, b.b)
		}
		c.Arrange()
		if first == nil {
			first, want = &c, figures(&c)
		}
		if !c.SameRows(first) {
			t.Fatal("the rows have another order")
		}
		if diff := cmp.Diff(want, figures(&c), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("(-first order +this):\n%s", diff)
		}
		rng.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	}

	// Batches that come again, whole or cut elsewhere, count once.
	for range 20 {
		var c metric.Collection
		c.Identify()
		for _, b := range batches {
			c.Add(b.at, b.b)
			for range rng.IntN(3) {
				from := rng.IntN(b.b.Rows)
				to := from + 1 + rng.IntN(b.b.Rows-from)
				at := metric.Place{Split: b.at.Split, From: b.at.From, Positions: b.at.Positions[from:to]}
				if from > 0 {
					at.From = b.at.Positions[from-1]
				}
				c.Add(at, cut(b.b, from, to))
			}
		}
		c.Arrange()
		if diff := cmp.Diff(want, figures(&c), cmpopts.EquateNaNs()); diff != "" || !c.SameRows(first) {
			t.Fatalf("(-once +again):\n%s", diff)
		}
		rng.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	}

	counts := map[string]int{}
	for _, b := range batches {
		for row := range b.b.Rows {
			if b.b.Heads[0].Mask[row] {
				counts[string(b.b.Keys[0].Value(row))+"/"+string(b.b.Keys[1].Value(row))]++
			}
		}
	}
	found := first.Slices(0, []int{0, 1}, -1, 4)
	if len(found) != 5 || found[4].Rest != len(counts)-4 {
		t.Fatalf("%d slices, %+v", len(found), found[len(found)-1])
	}
	total := 0
	for i, s := range found {
		total += s.Set.Len()
		if i < 4 && s.Set.Len() != counts[s.Values[0]+"/"+s.Values[1]] {
			t.Errorf("slice %q has %d examples, not %d", s.Values, s.Set.Len(), counts[s.Values[0]+"/"+s.Values[1]])
		}
	}
	if all := first.Set(0, -1); total != all.Len() {
		t.Errorf("slices of %d examples, %d in all", total, all.Len())
	}
	first.Add(metric.Place{Split: "3"}, batches[0].b)
	var c metric.Collection
	if c.SameRows(first) {
		t.Error("an empty collection has the rows of another")
	}
}

// cut is some rows of a batch of one head.
func cut(b *score.Batch, from, to int) *score.Batch {
	h := b.Heads[0]
	out := &score.Batch{
		Rows: to - from, Weights: b.Weights[from:to],
		Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: h.Predictions[from:to], Labels: h.Labels[from:to], Mask: h.Mask[from:to]}},
	}
	for i := range b.Keys {
		var k score.Key
		for row := from; row < to; row++ {
			k.Append(b.Keys[i].Value(row))
		}
		out.Keys = append(out.Keys, k)
	}
	return out
}
