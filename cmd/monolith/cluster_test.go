//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
)

// processes are the shards and workers of one job, each a process of its own that is started again whenever it ends badly.
type processes struct {
	t     *testing.T
	path  string // of the program
	job   string // its file
	dir   string
	mu    sync.Mutex
	procs map[string]*process
}

// process is one of them, over all its lives.
type process struct {
	name string
	args []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	out   *output       // of all lives
	ended chan struct{} // closed at the end of the life
	err   error
	stop  bool // it is to end
	lives int
	kills int           // lives that were killed
	done  chan struct{} // closed when it has ended for good
}

// launch starts a process and keeps it running until it ends without an error or is stopped.
func (p *processes) launch(name string, args ...string) *process {
	p.t.Helper()
	pr := &process{name: name, args: args, out: &output{}, done: make(chan struct{})}
	p.mu.Lock()
	p.procs[name] = pr
	p.mu.Unlock()
	started := make(chan error, 1)
	go func() {
		defer close(pr.done)
		for first := true; ; first = false {
			pr.mu.Lock()
			if pr.stop {
				pr.mu.Unlock()
				return
			}
			cmd := exec.Command(p.path, pr.args...)
			_, _ = fmt.Fprintf(pr.out, "-- %s, life %d\n", name, pr.lives+1)
			var result bytes.Buffer
			cmd.Stdout, cmd.Stderr = &result, pr.out
			err := cmd.Start()
			pr.cmd, pr.ended = cmd, make(chan struct{})
			pr.lives++
			pr.mu.Unlock()
			if first {
				started <- err
			}
			if err != nil {
				return
			}
			err = cmd.Wait()
			pr.mu.Lock()
			pr.err = err
			_, _ = pr.out.Write(result.Bytes())
			close(pr.ended)
			pr.mu.Unlock()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				return // it ended by itself
			}
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	return pr
}

// kill kills the current life, and returns once the next has begun. It fails the test when the victim was not alive: such
// a kill would prove nothing.
func (pr *process) kill(t *testing.T) {
	t.Helper()
	pr.mu.Lock()
	cmd, ended, life := pr.cmd, pr.ended, pr.lives
	pr.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGKILL) // what became of it, its state tells
	<-ended
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != syscall.SIGKILL {
		t.Fatalf("%s was to be killed in life %d, and had ended by itself: %v\n%s", pr.name, life, cmd.ProcessState, pr.last())
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
		pr.mu.Lock()
		next := pr.lives > life
		if next {
			pr.kills++
		}
		pr.mu.Unlock()
		if next {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not begin again after life %d", pr.name, life)
		}
	}
}

func (pr *process) signal(sig syscall.Signal) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	_ = pr.cmd.Process.Signal(sig)
}

// end stops the process for good.
func (pr *process) end(sig syscall.Signal) {
	pr.mu.Lock()
	pr.stop = true
	if pr.cmd != nil {
		_ = pr.cmd.Process.Signal(sig)
	}
	pr.mu.Unlock()
	<-pr.done
}

// all is everything that all lives have written.
func (pr *process) all() string { return pr.out.String() }

// output is what a process writes, to be read meanwhile.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String is what was written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// log is the end of it.
func (pr *process) log() string {
	text := pr.all()
	if len(text) > 6000 {
		text = "..." + text[len(text)-6000:]
	}
	return text
}

// last is the very end of it, for the line that says what failed.
func (pr *process) last() string {
	lines := strings.Split(strings.TrimSpace(pr.all()), "\n")
	return strings.Join(lines[max(len(lines)-6, 0):], "\n")
}

// wait waits until the process has ended by itself, and well
func (p *processes) wait(pr *process) {
	p.t.Helper()
	atMost := testbed.Patience(p.t)
	select {
	case <-pr.done:
	case <-time.After(atMost):
		pr.signal(syscall.SIGUSR1)
		time.Sleep(300 * time.Millisecond)
		p.dump()
		p.t.Fatalf("%s did not end within %v\n%s\n%s", pr.name, atMost, pr.last(), p.dead())
	}
	if pr.err != nil {
		p.dump()
		p.t.Fatalf("%s: %v\n%s\n%s", pr.name, pr.err, pr.last(), p.dead())
	}
}

// dead tells of the processes that ended by themselves, and badly.
func (p *processes) dead() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, pr := range p.procs {
		select {
		case <-pr.done:
			if pr.err != nil {
				_, _ = fmt.Fprintf(&b, "%s ended by itself: %v\n%s\n", pr.name, pr.err, pr.last())
			}
		default:
		}
	}
	return b.String()
}

// await waits until a process has written a text.
func (p *processes) await(pr *process, text string) {
	p.t.Helper()
	for deadline := time.Now().Add(testbed.Patience(p.t)); !strings.Contains(pr.all(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.dump()
			p.t.Fatalf("%s does not say %q", pr.name, text)
		}
	}
}

func (p *processes) dump() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pr := range p.procs {
		p.t.Logf("%s", pr.log())
	}
}

// startShards writes a job for shards in processes and starts these.
func startShards(t *testing.T, path, text string, shards int) *processes {
	t.Helper()
	addrs := make([]string, shards)
	for i := range addrs {
		addrs[i] = testbed.FreeAddr(t)
	}
	p := newProcesses(t, path)
	p.write(text, addrs)
	for i := range shards {
		p.launch(shardName(i), "ps", p.job, "--shard", fmt.Sprint(i), "-v")
	}
	return p
}

// newProcesses has none yet. Those that are launched are killed at the end of the test.
func newProcesses(t *testing.T, path string) *processes {
	t.Helper()
	dir := t.TempDir()
	p := &processes{t: t, path: path, dir: filepath.Join(dir, "run"), job: filepath.Join(dir, "job.yaml"), procs: map[string]*process{}}
	t.Cleanup(func() {
		p.mu.Lock()
		all := make([]*process, 0, len(p.procs))
		for _, pr := range p.procs {
			all = append(all, pr)
		}
		p.mu.Unlock()
		for _, pr := range all {
			pr.end(syscall.SIGKILL)
		}
	})
	return p
}

// write writes the job, of shards at the given addresses.
func (p *processes) write(text string, addrs []string) {
	p.t.Helper()
	text = strings.Replace(text, "ADDRESSES", "["+strings.Join(addrs, ", ")+"]", 1)
	text = strings.Replace(text, "DIR", p.dir, 1)
	if err := os.WriteFile(p.job, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func shardName(i int) string { return fmt.Sprintf("shard-%d", i) }

const clusterExamples = 40_000

// clusterJob is killJob with shards in processes of their own.
const clusterJob = `
version: 1
name: kill
dir: DIR
seed: 3
deterministic: true
source:
  kafka:
    brokers: [%[1]s]
    topic: clicks
    end: {0: %[2]d, 1: %[2]d, 2: %[2]d, 3: %[2]d}
    max_wait: 20ms
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: history, slot: 4, max: 3, combiner: mean}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [128, 128], batch_norm: true, dropout: 0.1}}
optimizer: {sparse: {adam: {lr: 0.01}}, bias: {ftrl: {lr: 0.1}}}
train: {batch: 97}
ps: {addresses: ADDRESSES, durability: %[3]s, recovery: %[4]s, lease: 3s}
snapshot: {every: 150ms, keep: 3}
`

// TestKilledProcessesEndWithTheSameDigest runs one worker and several shards as processes and kills workers, shards, or
// both at random moments, or takes the broker away for a while. Whatever dies, the digest of rows, optimizer state, dense
// parameters, positions and worker state is that of a run in one process that nobody touched.
func TestKilledProcessesEndWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)[:clusterExamples]
	text := func(b *broker.Broker, durability string) string {
		return fmt.Sprintf(clusterJob, strings.Join(b.Addrs(), ","), clusterExamples/killPartitions, durability, "rollback")
	}

	// The untouched run is one process.
	b := keptBroker(t)
	fill(t, b.Addrs()[0], records, 0, clusterExamples)
	dir, job := makeJob(t, strings.Replace(text(b, "none"), "addresses: ADDRESSES, ", "", 1))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	want := digest(t, path, dir)
	t.Logf("untouched: digest %s", want)

	for _, c := range []struct {
		name, durability         string
		workers, shards, brokers int // kills
		queues                   int // before and behind the step: they must change nothing
	}{
		{"untouched", "none", 0, 0, 0, 2},
		{"worker", "none", 10, 0, 0, 0},
		{"shards with rollback", "none", 0, 10, 0, 0},
		{"shards with wal", "wal", 0, 10, 0, 3},
		{"both with rollback", "none", 5, 5, 0, 3},
		{"both with wal", "wal", 10, 10, 0, 2},
		{"broker", "none", 0, 0, 3, 0},
	} {
		for _, shards := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/shards=%d", c.name, shards), func(t *testing.T) {
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed of the kills: %d", seed)
				rng := rand.New(rand.NewPCG(seed, uint64(shards)))
				loses := c.shards > 0 && c.durability == "none"
				b := keptBroker(t)
				queues := fmt.Sprintf("train: {batch: 97, prefetch: {parse: 4, lookup: %d, push: %d}}", c.queues, c.queues)
				p := startShards(t, path, strings.Replace(text(b, c.durability), "train: {batch: 97}", queues, 1), shards)
				worker := p.launch("worker", "train", p.job, "--worker", "w", "--json")
				// Each kill has a part of the stream for itself, so that none comes too late.
				kills, done := c.workers+c.shards+c.brokers, 0
				workerKills, shardKills := c.workers, c.shards
				for left := kills; left > 0; left-- {
					next := done + clusterExamples/(kills+1)
					fill(t, b.Addrs()[0], records, done, next)
					done = next
					time.Sleep(time.Duration(50+rng.IntN(300)) * time.Millisecond)
					switch n := rng.IntN(left); {
					case n < c.workers:
						c.workers--
						worker.kill(t)
					case n < c.workers+c.shards:
						victim := rng.IntN(shards)
						if c.shards == shardKills { // the one that coordinates is among them
							victim = 0
						}
						c.shards--
						p.procs[shardName(victim)].kill(t)
					default:
						c.brokers--
						restart(t, b)
					}
				}
				fill(t, b.Addrs()[0], records, done, clusterExamples)
				p.wait(worker)
				died := 0
				for i := range shards {
					died += p.procs[shardName(i)].kills
				}
				if zero := p.procs[shardName(0)].kills; worker.kills != workerKills || died != shardKills || shardKills > 0 && zero == 0 {
					t.Errorf("%d workers and %d shards were killed, shard 0 %d times; want %d and %d, shard 0 among them", worker.kills, died, zero, workerKills, shardKills)
				}
				// Only shards that have lost something go back: without the commit phase, a worker that dies between two shards
				// would leave a batch on one of them.
				if back := strings.Count(p.procs[shardName(0)].all(), "going back to the newest snapshot"); back > 0 && !loses {
					t.Errorf("the shards went back %d times, and nothing was lost", back)
					p.dump()
				}
				if got := digest(t, path, p.dir); got != want {
					t.Errorf("digest %s, %s untouched", got, want)
					p.dump()
				}
			})
		}
	}
}

// keptBroker keeps its records over restarts.
func keptBroker(t *testing.T) *broker.Broker {
	t.Helper()
	port, err := testbed.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": killPartitions}, Dir: t.TempDir(), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// restart takes a broker away and brings it back.
func restart(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestAsynchronousProcessesCountEveryExampleOnce runs three workers and later a fourth, with lookups ahead and pushes behind, and kills
// whatever there is. One worker is stopped until its splits have gone to others and then let continue: it must end with an
// error that says so. In the end every example must have been applied once on every shard: each id counts as often as it
// occurs in the stream, by the commit that applies gradients.
func TestAsynchronousProcessesCountEveryExampleOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)
	addr := startBroker(t)
	fill(t, addr, records, 0, killExamples)
	want := occurrences(t, killExamples)
	for _, c := range []struct{ durability, recovery string }{{"none", "rollback"}, {"none", "partial"}, {"wal", "rollback"}} {
		t.Run(c.durability+"/"+c.recovery, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 3))
			text := fmt.Sprintf(clusterJob, addr, killExamples/killPartitions, c.durability, c.recovery)
			for _, change := range [][2]string{
				{"deterministic: true", "deterministic: false"},
				{"train: {batch: 97}", "train: {batch: 97, prefetch: {parse: 4, lookup: 3, push: 3}}"},
				{"lease: 3s", "lease: 2s"},
			} {
				text = strings.Replace(text, change[0], change[1], 1)
			}
			const shards = 2
			p := startShards(t, path, text, shards)
			var workers []*process
			for i := range 3 {
				name := fmt.Sprint("worker-", i)
				workers = append(workers, p.launch(name, "train", p.job, "--worker", name))
			}
			zombie := workers[2]
			p.await(p.procs[shardName(0)], "worker=worker-2")
			time.Sleep(time.Duration(200+rng.IntN(300)) * time.Millisecond)
			zombie.signal(syscall.SIGSTOP)
			stopped := time.Now()
			for i := range 8 {
				if i == 4 { // one comes later: some of the splits go to it
					workers = append(workers, p.launch("worker-3", "train", p.job, "--worker", "worker-3"))
				}
				time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
				n := rng.IntN(4)
				if i == 0 { // the one that coordinates is among them
					n = 0
				}
				if n < 2 {
					p.procs[shardName(n)].kill(t)
				} else {
					workers[n-2].kill(t)
				}
			}
			// Longer than the lease, for all the time that shard 0 has been there.
			time.Sleep(max(0, 4500*time.Millisecond-time.Since(stopped)))
			zombie.signal(syscall.SIGCONT)
			for _, w := range []*process{workers[0], workers[1], workers[3]} {
				p.wait(w)
			}
			select {
			case <-zombie.done:
			case <-time.After(testbed.Patience(t)):
				p.dump()
				t.Fatal("the worker that was stopped continues")
			}
			if text := zombie.log(); zombie.err == nil || !strings.Contains(text, "replaced") {
				t.Errorf("the worker that was stopped ended with %v, want an error that says that it was replaced", zombie.err)
			}
			checkOccurrences(t, p.dir, killExamples, want)
			if t.Failed() {
				p.dump()
			}
		})
	}
}
