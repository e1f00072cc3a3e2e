package pstest

import (
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// retentionJobs are small jobs whose rows come and go: an example is a microsecond, ids come again after 30 to 100, and a batch now
// and then is of the far future. A limit leaves a row to each range of hashes, for which many ids compete.
func retentionJobs() map[string]Job {
	few, many := SmallJob(), SmallJob()
	many.NumIDs = 5003
	jobs := map[string]Job{}
	add := func(name string, j Job, r param.Retention) {
		r.MaxJump = 50
		j.Retention = r
		jobs[name] = j
	}
	add("expiry", few, param.Retention{Default: param.SlotRetention{Expire: 20}})
	add("exact", few, param.Retention{Default: param.SlotRetention{Expire: 45, Occurrences: 2}, Admission: param.AdmitExact})
	add("probabilistic", few, param.Retention{Default: param.SlotRetention{Expire: 25, Occurrences: 2}, Admission: param.AdmitProbable})
	add("linear", few, param.Retention{Default: param.SlotRetention{Occurrences: 3}, Admission: param.AdmitLinear})
	// One cell for each range of hashes, or two: fids meet, and the sliding one forgets.
	add("hash filter", many, param.Retention{Default: param.SlotRetention{Expire: 45, Occurrences: 2}, Admission: param.AdmitHash, FilterCapacity: 1})
	add("sliding", many, param.Retention{Default: param.SlotRetention{Occurrences: 1}, Admission: param.AdmitSliding, FilterCapacity: 1, FilterSplits: 5})
	add("oldest", many, param.Retention{MaxBytes: 1, Full: param.FullOldest, Default: param.SlotRetention{Expire: 90}})
	add("rarest", many, param.Retention{MaxBytes: 1, Full: param.FullRarest})
	add("refuse", many, param.Retention{MaxBytes: 1, Full: param.FullRefuse, Default: param.SlotRetention{Expire: 90, Occurrences: 1}, Admission: param.AdmitExact})
	return jobs
}

// testRetention holds that which ids have rows does not depend on the number of shards, kills, snapshots and restores.
func (s suite) testRetention(t *testing.T) {
	t.Parallel()
	for name, j := range retentionJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without := j
			without.Retention = param.Retention{}
			want, plain := s.reference(t, j, param.Float32), s.reference(t, without, param.Float32)
			if want == plain {
				t.Fatal("the rules change nothing: the test says nothing")
			}
			for _, shards := range []int{2, 5} {
				c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: shards, Dir: t.TempDir()})
				cl := client(t, c, "w")
				w, err := NewWorker(t.Context(), j, cl)
				if err != nil {
					t.Fatal(err)
				}
				finish(t, w)
				if err := cl.Close(); err != nil {
					t.Fatal(err)
				}
				if got := digest(t, c); got != want {
					t.Errorf("%d shards: digest %s, want %s", shards, got, want)
				}
				// A snapshot says the same of itself, and so does the cluster that is made of it.
				info := take(t, c, ps.SnapshotOptions{})
				if info.Digest != want {
					t.Errorf("%d shards: snapshot %s, want %s", shards, info.Digest, want)
				}
				again := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 3, Dir: t.TempDir(), Restore: info.Path})
				if got := digest(t, again); got != want {
					t.Errorf("restored from %d shards on 3: digest %s, want %s", shards, got, want)
				}
			}
			runs := 4
			if testing.Short() {
				runs = 2
			}
			kills := 0
			for seed := range uint64(runs) {
				k := NewKiller(seed, 0.01)
				if got, _ := s.run(t, j, k, rand.New(rand.NewPCG(seed, 9)), param.Float32); got != want {
					t.Errorf("seed %d: digest %s, want %s", seed, got, want)
				}
				kills += k.Kills()
			}
			if kills < runs {
				t.Errorf("%d kills in %d runs: too few to mean anything", kills, runs)
			}
		})
	}
}
