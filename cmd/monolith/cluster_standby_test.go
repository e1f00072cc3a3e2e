//go:build unix

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// saysTimes waits until standard error holds words so many times.
func (p *child) saysTimes(words string, n int) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); strings.Count(p.text(), words) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("does not say %q %d times:\n%s", words, n, p.text())
		}
	}
}

// comingAndGoing has ids wait for rows, and rows expire.
const comingAndGoing = "{occurrences: 2, expire: 2000s}"

// TestStandby has a shard with a standby: the process in charge is stopped, told to hand over, and killed, while a worker trains. What the worker
// comes to is what one process comes to, and who was stopped finds that it is not in charge any more.
func TestStandby(t *testing.T) {
	t.Parallel()
	for what, retention := range map[string]string{"rows stay": "", "rows come and go": comingAndGoing} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			standby(t, retention)
		})
	}
}

func standby(t *testing.T, retention string) {
	t.Helper()
	c := newCluster(t, 2, 12000, 1500, "")
	c.retention = retention
	second := testbed.FreeAddr(t)
	c.job = c.write(t, "job.yaml", "run", fmt.Sprintf("ps: {addresses: [%s], standby: {addresses: [\"\", \"%s\"], lease: 500ms}, retry: 1m, lease: 2s, durability: wal}\n",
		strings.Join(c.addrs, ", "), second))
	const charge, caught = "the standby is in charge from now on", "the standby has caught up"
	shards := c.serve(t)
	monolith(t, "ps", "promote", c.job, "--shard", "1").wants(t, 3, "does not answer or has no state yet")
	monolith(t, "ps", "promote", c.job, "--shard", "0").wants(t, 2, "shard 0 has no standby")
	standby := start(t, "", "ps", c.job, "--shard", "1", "--standby").says("listens")
	monolith(t, "ps", c.job, "--standby").wants(t, 3, "shard 1 has a standby already")
	shards[1].says(caught)
	worker := start(t, "", "train", c.job)
	for len(c.snapshots()) < 2 {
		time.Sleep(5 * time.Millisecond)
	}

	shards[1].stop()
	began := time.Now()
	standby.says(charge)
	t.Logf("in charge %v after the other was stopped", time.Since(began).Round(time.Millisecond))
	_ = shards[1].cmd.Process.Signal(syscall.SIGCONT)
	shards[1].says("the other process of the pair is in charge")
	standby.says(caught)

	if o := monolith(t, "ps", "promote", c.job, "--shard", "1"); o.code != 0 || !strings.Contains(o.stdout, "took") {
		t.Errorf("promote ends with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	shards[1].says(charge)
	shards[1].saysTimes(caught, 2)

	shards[1].end(syscall.SIGKILL)
	standby.saysTimes(charge, 2)
	term := filepath.Join(c.dir, "run", "snapshots", "term-0001")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // it is written down once the standby has answered
		b, err := os.ReadFile(term)
		if err == nil && strings.TrimSpace(string(b)) == "3" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the term is %q, %v; want 3", b, err)
		}
	}
	worker.end(0).wants(t, 0)
	shards[0].end(syscall.SIGTERM).wants(t, 0)
	c.exact(t)
}

// newest is the name of the newest snapshot, "" for none.
func (c *cluster) newest() string {
	if all := c.snapshots(); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// trains returns when what has changed since a snapshot is in another one: somebody coordinates, and the worker trains or has ended. said is for when it does not.
func (c *cluster) trains(t *testing.T, worker *child, before string, said func() string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); c.newest() <= before; time.Sleep(5 * time.Millisecond) {
		select {
		case <-worker.done: // so slow is this machine
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("no snapshot after %q:\n%s", before, said())
		}
	}
}

// TestShardZeroComesBack kills shard 0, which coordinates and has no standby, while a worker trains, and starts it again with the same command: it continues from its log, nothing
// that was acknowledged goes back, and in the end every example has counted once.
func TestShardZeroComesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 6000, 1500, "")
	c.job = c.write(t, "job.yaml", "run", fmt.Sprintf("ps: {addresses: [%s], retry: 1m, durability: wal}\n", strings.Join(c.addrs, ", ")))
	zero := c.serve(t)[0]
	worker := start(t, "", "train", c.job)
	newest := c.newest
	trains := func(before string) { c.trains(t, worker, before, func() string { return zero.text() }) }
	trains("")
	for range 3 {
		began := time.Now()
		zero.end(syscall.SIGKILL)
		before := newest()
		zero = start(t, "", "ps", c.job, "--shard", "0").says("shards continue from their logs")
		trains(before)
		t.Logf("a snapshot of what was trained since, %v after the kill", time.Since(began).Round(time.Millisecond))
	}
	o := worker.end(0)
	if o.wants(t, 0); strings.Contains(o.stderr, "gone back") {
		t.Errorf("the worker went back:\n%s", o.stderr)
	}
	zero.end(syscall.SIGTERM).wants(t, 0)
	c.exact(t)
}

// TestStandbyOfShardZero has shard 0, which coordinates, with a standby: the process in charge is stopped, told to hand over, and killed, while a worker trains. Snapshots are taken all the time, and what the
// worker comes to is what one process comes to.
func TestStandbyOfShardZero(t *testing.T) {
	t.Parallel()
	for what, retention := range map[string]string{"rows stay": "", "rows come and go": comingAndGoing} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			standbyOfShardZero(t, retention)
		})
	}
}

func standbyOfShardZero(t *testing.T, retention string) {
	t.Helper()
	c := newCluster(t, 2, 12000, 1500, "")
	c.retention = retention
	second := testbed.FreeAddr(t)
	c.job = c.write(t, "job.yaml", "run", fmt.Sprintf("ps: {addresses: [%s], standby: {addresses: [\"%s\"], lease: 1500ms}, retry: 1m, durability: wal}\n",
		strings.Join(c.addrs, ", "), second))
	const charge, caught, coordinates = "the standby is in charge from now on", "the standby has caught up", "2 shards are ready"
	monolith(t, "ps", c.job).wants(t, 2, "shard 1 decides which of the two processes of shard 0 is in charge")
	monolith(t, "ps", c.job, "--shard", "0", "--resume=false").wants(t, 2, "shard 0 has a standby, which may be the one that has the state")
	shards := c.serve(t)
	first := shards[0].says(coordinates)
	monolith(t, "ps", "promote", c.job, "--shard", "0").wants(t, 3, "does not answer or has no state yet")
	standby := start(t, "", "ps", c.job, "--standby").says("listens")
	first.says(caught)
	worker := start(t, "", "train", c.job)
	trains := func() { c.trains(t, worker, c.newest(), func() string { return first.text() + standby.text() }) }
	trains()
	monolith(t, "ps", "scale", c.job, "--to", c.addrs[0]).wants(t, 2, "decides which process of shard 0 is in charge, and is not removed: 2 shards are the fewest")

	first.stop()
	began := time.Now()
	standby.says(charge).says(coordinates)
	t.Logf("coordinates %v after the other was stopped", time.Since(began).Round(time.Millisecond))
	_ = first.cmd.Process.Signal(syscall.SIGCONT)
	first.says("the other process of the pair is in charge")
	standby.says(caught)
	trains()

	if o := monolith(t, "ps", "promote", c.job, "--shard", "0"); o.code != 0 || !strings.Contains(o.stdout, "took") {
		t.Errorf("promote ends with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	first.says(charge)
	first.saysTimes(coordinates, 2)
	first.saysTimes(caught, 2)
	trains()

	select {
	case <-first.done:
		t.Fatalf("shard 0 has ended before it was killed:\n%s", first.text())
	default:
	}
	began = time.Now()
	first.end(syscall.SIGKILL)
	standby.saysTimes(charge, 2)
	standby.saysTimes(coordinates, 2)
	t.Logf("coordinates %v after the other was killed", time.Since(began).Round(time.Millisecond))
	trains()
	worker.end(0).wants(t, 0)
	standby.end(syscall.SIGTERM).wants(t, 0)
	c.exact(t)
}
