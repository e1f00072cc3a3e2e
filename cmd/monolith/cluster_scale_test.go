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
			p.wait(worker)
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

// TestScaleWithStandbys adds a shard with a standby to one that has one, while a worker trains, and kills the first processes of both. The standbys continue, the shard is removed again
// with the process that is in charge of it, and the digest is that of one process.
func TestScaleWithStandbys(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 12000, 1500, "")
	section := func(addrs []string, standbys ...string) string {
		return fmt.Sprintf("ps: {addresses: [%s], standby: {addresses: [\"\", %s], lease: 2s}, retry: 2m, lease: 2s, durability: wal}\n", strings.Join(addrs, ", "), strings.Join(standbys, ", "))
	}
	addrs := append(c.addrs[:2:2], testbed.FreeAddr(t))
	standbys := []string{testbed.FreeAddr(t), testbed.FreeAddr(t)}
	edited := c.write(t, "edited.yaml", "run", section(addrs, standbys...))
	c.job = c.write(t, "job.yaml", "run", section(c.addrs, standbys[0]))
	shards := c.serve(t)
	firsts, seconds := []*child{shards[1]}, []*child{start(t, "", "ps", c.job, "--shard", "1", "--standby")}
	// caughtUp waits until the standby of a shard has so many times.
	caughtUp := func(shard, times int) {
		t.Helper()
		said := func() int {
			return strings.Count(firsts[shard-1].text()+seconds[shard-1].text(), "the standby has caught up")
		}
		for deadline := time.Now().Add(2 * time.Minute); said() < times; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the standby of shard %d has not caught up %d times:\n%s\n%s", shard, times, firsts[shard-1].text(), seconds[shard-1].text())
			}
		}
	}
	caughtUp(1, 1)
	worker := start(t, "", "train", c.job)
	for len(c.snapshots()) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	monolith(t, "ps", "scale", edited, "--to", strings.Join(addrs, ","), "--set", "ps.retry=1s").wants(t, 3, "shard 2, to be added at "+addrs[2]+", must run first")
	for _, args := range [][]string{{}, {"--standby"}} {
		p := start(t, "", append([]string{"ps", edited, "--shard", "2"}, args...)...).says("listens")
		if len(args) == 0 {
			firsts = append(firsts, p)
		} else {
			seconds = append(seconds, p)
		}
	}
	monolith(t, "ps", "scale", edited).wants(t, 0)
	caughtUp(1, 2)
	caughtUp(2, 1)
	for i, p := range firsts {
		p.end(syscall.SIGKILL)
		seconds[i].says("the standby is in charge from now on")
	}
	monolith(t, "ps", "scale", edited, "--to", strings.Join(c.addrs, ",")).wants(t, 0)
	seconds[1].says("shard 2 was removed: the job has 2 shards now")
	worker.end(0).wants(t, 0)
	shards[0].end(syscall.SIGTERM).wants(t, 0)
	c.exact(t)
}

// TestScaleIsNoLoss: where the number of shards changes and nothing is lost, no process says that the shards went back, or that the log of one that is added is missing.
func TestScaleIsNoLoss(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 100_000_000, 2000, "")
	section := func(addrs []string) string {
		return fmt.Sprintf("ps: {addresses: [%s], retry: 2m, durability: wal}\n", strings.Join(addrs, ", "))
	}
	addrs := append(c.addrs[:1:1], testbed.FreeAddr(t))
	c.job = c.write(t, "job.yaml", "run", section(c.addrs))
	edited := c.write(t, "edited.yaml", "run", section(addrs))
	first := c.serve(t)[0]
	worker := start(t, "", "train", c.job)
	for len(c.snapshots()) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	second := start(t, "", "ps", edited, "--shard", "1").says("listens")
	monolith(t, "ps", "scale", edited).wants(t, 0)
	worker.says("there are 2 shards now, 1 before; this worker goes on with them")
	worker.end(syscall.SIGTERM).wants(t, 143)
	first.end(syscall.SIGTERM).wants(t, 0)
	second.end(syscall.SIGTERM).wants(t, 0)
	for _, p := range []*child{worker, first, second} {
		for _, no := range []string{"gone back", "gives back nothing"} {
			if strings.Contains(p.text(), no) {
				t.Errorf("%q is said, though nothing is lost:\n%s", no, p.text())
			}
		}
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
