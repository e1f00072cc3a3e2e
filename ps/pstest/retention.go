package pstest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
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
	add("steps", few, param.Retention{Default: param.SlotRetention{Expire: 20}, MaxStep: 3})
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

// fewRetained are the jobs of short runs.
var fewRetained = []string{"expiry", "steps", "exact", "sliding", "oldest"}

// testRetainedChains holds that a snapshot of what has changed, with its bases, is what a whole one would have been, of rows that come and go: read back, compacted, and gone on from.
func (s suite) testRetainedChains(t *testing.T) {
	t.Parallel()
	for name, j := range retentionJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && !slices.Contains(fewRetained, name) {
				t.Skip("part of the full run")
			}
			steps := 10
			if j.Retention.Admission.Filters() { // rows enough that it is worth while to leave some out
				j.SplitLen, j.Retention.Default.Expire, steps = 5*j.SplitLen, 40*j.Retention.Default.Expire, 5*steps
			}
			want := s.reference(t, j, param.Float32)
			r := rand.New(rand.NewPCG(uint64(len(name)), 5))
			dir, of := t.TempDir(), map[uint64]string{}
			incremental := 0
			for life, more := 0, true; more; life++ {
				c, err := s.open(t.Context(), coordinator.Options{Layout: j.Layout(), NumShards: 2 + life/3%2, Dir: dir, Keep: 1000, Incremental: 1000})
				if err != nil {
					t.Fatal(err)
				}
				if was := c.Restored(); was != nil && digest(t, c) != of[was.ID] {
					t.Errorf("life %d: snapshot %d restored: digest %s, want %s", life, was.ID, digest(t, c), of[was.ID])
				}
				cl := client(t, c, "w")
				w, err := NewWorker(t.Context(), j, cl)
				for range 3 {
					for n := r.IntN(steps); err == nil && more && n >= 0; n-- {
						more, err = w.Step(t.Context())
					}
					if err == nil {
						err = cl.Flush(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
					done := make(chan struct{})
					var info ps.SnapshotInfo
					go func() {
						defer close(done)
						info, err = c.Snapshot(t.Context(), ps.SnapshotOptions{})
					}()
					if werr := await(t.Context(), cl, done, math.MaxInt); werr != nil || err != nil {
						t.Fatal(werr, err)
					}
					if of[info.ID] = digest(t, c); info.Base != nil {
						incremental++
					}
				}
				if err := errors.Join(cl.Close(), c.Close(t.Context())); err != nil {
					t.Fatal(err)
				}
				if !more && of[uint64(len(of))] != want {
					t.Errorf("digest %s at the end, want %s", of[uint64(len(of))], want)
				}
			}
			if incremental < 4 && j.Retention.Full != param.FullRefuse { // where most ids wait, which are all in every snapshot
				t.Errorf("%d of %d snapshots are of what has changed: too few to mean anything", incremental, len(of))
			}
			for _, compacted := range []bool{false, true} {
				for id, want := range of {
					path := snapshot.Path(dir, id)
					if compacted {
						if info, err := snapshot.Compact(t.Context(), nil, path, j.Layout(), nil); err != nil || info.Digest != want {
							t.Errorf("snapshot %d: digest %s when it is compacted, want %s: %v", id, info.Digest, want, err)
						}
					}
					open, err := snapshot.Open(t.Context(), path)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := open.Digest(); err != nil || got != want {
						t.Errorf("snapshot %d: digest %s, want %s: %v", id, got, want, err)
					}
					if err := open.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
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
			if unbounded := j; j.Retention.MaxStep > 0 {
				unbounded.Retention.MaxStep = 0
				if s.reference(t, unbounded, param.Float32) == want {
					t.Error("the largest step of the clock changes nothing: the test says nothing")
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
