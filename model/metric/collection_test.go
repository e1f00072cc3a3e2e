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
			c.Add(b)
		}
		if c.Rows() == 0 {
			if s := c.Set(0, -1); s.Len() != 0 || len(c.Slices(0, 1, 3)) != 0 {
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
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(metric.Set{}), cmpopts.IgnoreFields(metric.Set{}, "Groups", "NumGroups"), cmpopts.EquateEmpty()); diff != "" {
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
			slicesOf := c.Slices(h, 1, 3)
			for i, s := range slicesOf {
				if s.Rest > 0 {
					if i != 3 || s.Rest != len(counts)-3 {
						t.Fatalf("slice %d is of %d other values, there are %d", i, s.Rest, len(counts))
					}
					same("the rest", s.Set, set(func(r row) bool { return !named[r.key] }))
					continue
				}
				named[s.Value] = true
				same(s.Value, s.Set, set(func(r row) bool { return r.key == s.Value }))
				if i > 0 && s.Set.Len() > slicesOf[i-1].Set.Len() {
					t.Fatalf("slice %q of %d examples comes behind %q of %d", s.Value, s.Set.Len(), slicesOf[i-1].Value, slicesOf[i-1].Set.Len())
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
