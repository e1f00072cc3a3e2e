//go:build unix

package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/sources/synthsource"
)

// zooKillExamples is how long the stream of each model is.
const zooKillExamples = 6000

// TestEveryModelKilledEndsWithTheSameDigest kills a process that trains each model of the zoo, by its defaults and those that go through histories in their own ways with one, with SIGKILL at a random
// point of a stream that is published while it trains, so that it cannot have come to the end; starts it again, and compares the digest with that of a process that nobody touched. The one that is
// killed must have stored something, and have left something to do.
func TestEveryModelKilledEndsWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := synthsource.NewStream(synthsource.Options{Seed: 3, Examples: zooKillExamples})
	if err != nil {
		t.Fatal(err)
	}
	records := make([][]byte, zooKillExamples)
	for i := range records {
		var ex synthsource.Example
		stream.At(int64(i), &ex)
		records[i] = ex.AppendTFExample(nil)
	}
	models := map[string]string{}
	for _, m := range components.All().Models {
		if m.Name != "graph" {
			models[m.Name] = m.Name
		}
	}
	const history = " with a history"
	for _, name := range []string{"din", "dien", "hstu"} {
		models[name+history] = name
	}
	models["dien by agru"+history] = "{dien: {agru: true}}"
	models["snr straight through"] = "{snr: {straight_through: true, l0: 0.001}}"
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the kills: %d", seed)
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := []string{
				fmt.Sprint(killExamples / killPartitions), fmt.Sprint(zooKillExamples / killPartitions),
				"{deepfm: {dim: 4, hidden: [256, 256], batch_norm: true, dropout: 0.1}}", model,
				"optimizer: {sparse: {adam: {lr: 0.01}}, bias: {ftrl: {lr: 0.1}}}\n", "",
				"every: 30ms", "every: 5ms",
			}
			if strings.HasSuffix(name, history) {
				changes = append(changes, "{name: history, slot: 4, max: 3, combiner: mean}", "{name: history, slot: 2, max: 3, attends: item}")
			}
			addr := startBroker(t)
			dir, job := writeKillJob(t, addr, 2, changes...)
			rng := rand.New(rand.NewPCG(seed, uint64(len(name))<<8|uint64(name[0])))
			drawn := 1 + rng.IntN(15)
			done, more := 0, drawn
			publish := func(until int) {
				fill(t, addr, records, done, until)
				done = until
			}
			killWhen(t, path, job, func() bool {
				if done < zooKillExamples/2 {
					publish(done + 150)
				}
				// Some more is published after a snapshot that has trained something.
				if more < drawn || storedRows(t, dir) > 0 {
					more--
				}
				return more <= 0
			})
			stored := storedRows(t, dir)
			if stored == 0 {
				t.Fatal("the one that was killed has stored nothing that it learned")
			}
			publish(zooKillExamples)
			left := lastLife(t, path, job)
			if left != zooKillExamples-stored || left < zooKillExamples/2 {
				t.Errorf("%d examples were left for the one that went on: of %d, %d were stored and %d published", left, zooKillExamples, stored, zooKillExamples/2)
			}
			twin, untouched := writeKillJob(t, addr, 2, changes...)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if out, err := exec.CommandContext(ctx, path, "train", untouched).CombinedOutput(); err != nil {
				t.Fatalf("the untouched run: %v\n%s", err, out)
			}
			if got, want := digest(t, path, dir), digest(t, path, twin); got != want {
				t.Errorf("digest %s after a kill, %s untouched", got, want)
			}
		})
	}
}

// storedRows is how many examples the newest snapshot in a job's dir that can be read has trained; 0 if there is none.
func storedRows(t *testing.T, dir string) (rows int64) {
	t.Helper()
	entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(entries) == 0 {
		return 0
	}
	snap, err := snapshot.Open(t.Context(), entries[0].Path)
	if err != nil { // a newer one has taken its place
		return 0
	}
	for _, p := range snap.Info().Positions["kafka"] {
		rows += p.Rows
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	return rows
}
