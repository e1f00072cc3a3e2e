package wal_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

// TestPowerFailureWhileBeginning: a log whose last record is torn is opened again, and the power fails at any moment of that: whatever order the disk made names
// durable in, all whole records are there.
func TestPowerFailureWhileBeginning(t *testing.T) {
	t.Parallel()
	want := texts(20)
	d := build(t, false, 1, want...)
	files := d.files()
	last := d.names["/ps/wal/"+files[len(files)-1]]
	last.data = last.data[:len(last.data)-1]
	want = want[:len(want)-1]
	for name, n := range d.names { // the disk has had time for all of it
		n.platter = slices.Clone(n.data)
		d.safe[name] = n
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for at := 1; ; at++ {
		c := d.processDeath()
		c.killAt = at
		p := newProcess(c, 1)
		p.shards[0].state, p.shards[0].acked = want, len(want)
		err := p.open(t.Context())
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at %d: %v", at, err)
		}
		if p.log != nil {
			_ = p.log.Close()
		}
		for range 60 {
			f := c.powerFailure(rng)
			l, err := wal.Open(options(f))
			if err != nil {
				t.Fatalf("killed at %d: %v", at, err)
			}
			var got []string
			if _, err := l.Shard(0).Replay(t.Context(), 0, collect(&got)); err != nil || !slices.Equal(got, want) {
				t.Fatalf("killed at %d: %d records of %d: %v", at, len(got), len(want), err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err == nil {
			return
		}
	}
}
