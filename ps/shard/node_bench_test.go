package shard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// BenchmarkNode measures a shard's stream: a push with the commit of the one before in front, and a lookup. log=none is
// measured twice, which says what difference means nothing.
func BenchmarkNode(b *testing.B) {
	const batch, dim, rows = 500, 16, 100_000
	r := rand.New(rand.NewPCG(1, 1))
	keys := make([][]int64, 16)
	for i := range keys {
		keys[i] = pstest.Distinct(r, batch, rows)
	}
	id := ps.SplitID{Source: "s", Split: "x"}
	for _, log := range []string{"none", "none-again", "nosync", "sync"} {
		o := shard.Options{Layout: pstest.BenchLayout(dim), NumShards: 1}
		if log == "nosync" || log == "sync" {
			o.Log = &shard.LogOptions{Dir: b.TempDir(), NoSync: log == "nosync"}
		}
		n, err := shard.Open(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		if err := n.Load(b.Context(), ps.LoadOptions{Generation: 1}); err != nil {
			b.Fatal(err)
		}
		c, err := n.Connect(b.Context(), 1, 1, "w")
		if err == nil {
			_, _, err = c.Acquire(b.Context(), id, 1)
		}
		u := pstest.BenchUpdate(keys[0], dim)
		u.To = 1
		if err == nil {
			_, err = c.Stage(b.Context(), nil, 1, u)
		}
		if err != nil {
			b.Fatal(err)
		}
		ctl := []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1}}
		i := 0
		b.Run(fmt.Sprintf("op=push/log=%s/batch=%d/dim=%d", log, batch, dim), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(batch * (8 + 4 + 4*dim))
			for b.Loop() {
				ctl[0].To = u.To
				u.Keys[0] = keys[i%len(keys)]
				u.From, u.To = u.To, u.To+1
				if _, err := c.Stage(b.Context(), ctl, 1, u); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		look := &param.Rows{Keys: [][]int64{keys[0]}, Values: [][]float32{make([]float32, batch*dim)}}
		b.Run(fmt.Sprintf("op=lookup/log=%s/batch=%d/dim=%d", log, batch, dim), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(batch * 4 * dim)
			for b.Loop() {
				look.Keys[0] = keys[i%len(keys)]
				if _, err := c.Lookup(b.Context(), nil, look); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
