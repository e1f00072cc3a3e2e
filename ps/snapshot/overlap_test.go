package snapshot_test

import (
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestOverlap: a shard that loads a snapshot of another number of them opens the files that have buckets of its own, and few others.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 5, 7, 64, 1000} {
		for _, m := range []int{1, 2, 3, 5, 8, 60, 999} {
			both := map[[2]int]bool{}
			for bucket := range ps.NumBuckets {
				both[[2]int{ps.ShardOf(bucket, n), ps.ShardOf(bucket, m)}] = true
			}
			more := 0
			for a := range n {
				for b := range m {
					got, want := snapshot.Overlap(a, n, b, m), both[[2]int{a, b}]
					if want && !got {
						t.Fatalf("shard %d of %d has buckets of shard %d of %d", a, n, b, m)
					}
					if got && !want {
						more++
					}
				}
			}
			if more > n+m {
				t.Errorf("%d of %d and %d shards meet without a bucket", more, n, m)
			}
		}
	}
}
