//go:build unix

package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps/snapshot"
)

const scaleJob = `
version: 1
name: click
dir: DIR
seed: 3
deterministic: true
source: {synthetic: {examples: 24000, splits: 2, rate: RATE}}
parse:
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [16, 8]}}
train: {batch: 50}
ps: {addresses: ADDRESSES, durability: %s, lease: 3s, retry: 2m}
snapshot: {every: 200ms, keep: 3}
`

// TestScaleProcesses goes from 2 to 5 to 3 shards while a worker trains. Shards, the coordinator, the worker and the command itself are
// killed meanwhile, and what is asked for is asked for again. The digest is that of one process which nobody touched.
func TestScaleProcesses(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	dir, job := makeJob(t, strings.NewReplacer("addresses: ADDRESSES, ", "", "RATE", "0").Replace(fmt.Sprintf(scaleJob, "none")))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	want := digest(t, path, dir)
	for _, durability := range []string{"none", "wal"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(fmt.Sprintf(scaleJob, durability), "RATE", "4000", 1)
			p := startShards(t, path, text, 2)
			worker := p.launch("worker", "train", p.job, "--worker", "w")
			p.await(p.procs[shardName(0)], "shards are ready")
			// The job file is edited, with three more shards, and those start.
			b, err := os.ReadFile(p.job)
			if err != nil {
				t.Fatal(err)
			}
			_, line, _ := strings.Cut(string(b), "addresses: [")
			line, _, _ = strings.Cut(line, "]")
			addrs := strings.Split(line, ", ")
			for range 3 {
				addrs = append(addrs, testbed.FreeAddr(t))
			}
			edited := filepath.Join(filepath.Dir(p.job), "edited.yaml")
			if err := os.WriteFile(edited, []byte(strings.Replace(string(b), line, strings.Join(addrs, ", "), 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			for i := 2; i < 5; i++ {
				p.launch(shardName(i), "ps", edited, "--shard", fmt.Sprint(i), "-v")
			}
			// Nothing of what cannot be has an effect.
			monolith(t, "ps", "scale", edited, "--to", addrs[0]+","+addrs[0]).wants(t, 2, addrs[0]+" is named twice, for shard 0 and for shard 1")
			monolith(t, "ps", "scale", edited, "--to", strings.Join(addrs[1:], ",")).wants(t, 2, "shard 0 is at "+addrs[0]+" and stays there")
			monolith(t, "ps", "scale", edited, "--to", "nowhere").wants(t, 2, "--to", "nowhere")
			monolith(t, "ps", "scale", job).wants(t, 2, "ps.addresses is empty", "ps.shards")
			r := rand.New(rand.NewPCG(7, uint64(len(durability))))
			// scale asks for shards until they are there; before that, somebody is killed while it is under way, once for each victim.
			scale := func(victims []string, args ...string) string {
				for _, name := range victims {
					ctx, cancel := context.WithCancel(t.Context())
					cmd := exec.CommandContext(ctx, path, append([]string{"ps", "scale", edited}, args...)...)
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond) // at any phase: whichever it is, the result is the same
					if name != "" {
						if victim := p.procs[name]; victim != worker || !ended(worker) {
							victim.kill(t)
						}
					}
					cancel() // the command dies too
					_ = cmd.Wait()
				}
				out, err := exec.CommandContext(t.Context(), path, append([]string{"ps", "scale", edited}, args...)...).CombinedOutput()
				if err != nil {
					p.dump()
					t.Fatalf("%v\n%s", err, out)
				}
				return string(out)
			}
			scale([]string{shardName(0), shardName(3), "worker", ""})
			said := scale(nil)
			if !strings.Contains(said, "the job has these 5 shards") {
				t.Errorf("5 shards: %s", said)
			}
			scale([]string{shardName(1), shardName(4), shardName(0)}, "--to", strings.Join(addrs[:3], ","))
			if said := scale(nil, "--to", strings.Join(addrs[:3], ",")); !strings.Contains(said, "the job has these 3 shards") {
				t.Errorf("3 shards: %s", said)
			}
			// Those that were removed may go; a worker that is started with any of the lists finds its way.
			for _, i := range []int{3, 4} {
				p.procs[shardName(i)].end(syscall.SIGTERM)
			}
			p.wait(worker, 3*time.Minute)
			monolith(t, "train", edited, "--worker", "late").wants(t, 0)
			p.procs[shardName(0)].end(syscall.SIGTERM)
			if got := digest(t, path, p.dir); got != want {
				p.dump()
				t.Errorf("digest %s, want %s", got, want)
			}
			if n := newestShards(t, p.dir); n != 3 {
				t.Errorf("the last snapshot is of %d shards, want 3", n)
			}
		})
	}
}

// ended reports whether a process has ended for good.
func ended(pr *process) bool {
	select {
	case <-pr.done:
		return true
	default:
		return false
	}
}

// newestShards is how many shards wrote the newest snapshot of a job's dir.
func newestShards(t *testing.T, dir string) int {
	t.Helper()
	all, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(all) == 0 || all[0].Err != nil {
		t.Fatalf("no snapshot in %s: %v", dir, err)
	}
	return all[0].Info.Shards
}
