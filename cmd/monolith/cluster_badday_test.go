//go:build unix

package main_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps/wire"
)

// cluster is a job whose shards are processes that nobody starts again.
type cluster struct {
	dir, job string
	addrs    []string
	source   string
	// retention, if not empty, is the section of that name; snapshots then hold what has changed.
	retention string
}

// newCluster writes a job of so many shards and examples, at so many a second (0: as fast as they are read). ps is what
// its section says beside the usual.
func newCluster(t *testing.T, shards, examples, rate int, ps string) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir(), source: fmt.Sprintf("{synthetic: {examples: %d, rate: %d, splits: 2}}", examples, rate)}
	for range shards {
		c.addrs = append(c.addrs, testbed.FreeAddr(t))
	}
	section := fmt.Sprintf("ps: {addresses: [%s], retry: 1s, lease: 2s%s}\n", strings.Join(c.addrs, ", "), ps)
	c.job = c.write(t, "job.yaml", "run", section)
	return c
}

func (c *cluster) write(t *testing.T, name, dir, section string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	text := fmt.Sprintf(smallJob, c.dir, c.source) + "seed: 3\ndeterministic: true\nsnapshot: {every: 100ms, keep: 3}\n" + section
	if c.retention != "" {
		text = strings.Replace(text, "keep: 3}", "keep: 3, incremental: 3}", 1) + "retention: " + c.retention + "\n"
	}
	text = strings.Replace(text, c.dir+"/run", filepath.Join(c.dir, dir), 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// alone is the digest of the job trained in one process that nobody touches.
func (c *cluster) alone(t *testing.T) string {
	t.Helper()
	c.source = strings.Replace(c.source, "rate: ", "rate: 0 # ", 1)
	c.source = strings.Split(c.source, " #")[0] + ", splits: 2}}"
	monolith(t, "train", c.write(t, "alone.yaml", "alone", "")).wants(t, 0)
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	return digest(t, path, filepath.Join(c.dir, "alone"))
}

// exact reports whether the cluster's last snapshot is what one process comes to.
func (c *cluster) exact(t *testing.T) {
	t.Helper()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	want := c.alone(t)
	if got := digest(t, path, filepath.Join(c.dir, "run")); got != want {
		t.Errorf("digest %s, %s in one process", got, want)
	}
	if c.retention == "" {
		return
	}
	t.Log(monolith(t, "snapshot", "list", filepath.Join(c.dir, "run")).stdout)
	c.retention = ""
	monolith(t, "train", c.write(t, "stay.yaml", "stay", "")).wants(t, 0)
	if digest(t, path, filepath.Join(c.dir, "stay")) == want {
		t.Error("no row has gone: the test says nothing")
	}
}

// snapshots are the whole ones that hold rows of both shards, the newest last.
func (c *cluster) snapshots() []string {
	found, _ := filepath.Glob(filepath.Join(c.dir, "run", "snapshots", "snap-????????", "manifest.json")) // which is written last
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// child is a process under way.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	mu   sync.Mutex
	errs bytes.Buffer
	out  bytes.Buffer
	done chan struct{}
}

// Write takes standard error.
func (p *child) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.Write(b)
}

func (p *child) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

// start runs a command line in a folder, "" for this one. It is killed at the end of the test.
func start(t testing.TB, dir string, args ...string) *child {
	t.Helper()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.out, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	return p
}

// says waits until standard error holds words.
func (p *child) says(words string) *child {
	p.t.Helper()
	for deadline := time.Now().Add(testbed.Patience(p.t)); !strings.Contains(p.text(), words); time.Sleep(5 * time.Millisecond) {
		over := time.Now().After(deadline)
		select {
		case <-p.done:
			over = !strings.Contains(p.text(), words)
		default:
		}
		if over {
			p.t.Fatalf("does not say %q:\n%s", words, p.text())
		}
	}
	return p
}

// stop stops the process as SIGSTOP does, and returns once none of its threads runs.
func (p *child) stop() {
	p.t.Helper()
	pid := p.cmd.Process.Pid
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(testbed.Patience(p.t)); ; time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		running := slices.ContainsFunc(threads, func(path string) bool {
			b, _ := os.ReadFile(path)
			_, state, _ := strings.Cut(string(b), ") ")
			return state != "" && state[0] != 'T'
		})
		if !running {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("process %d goes on after SIGSTOP", pid)
		}
	}
}

// end sends a signal, if it is not 0, and waits for the end.
func (p *child) end(sig syscall.Signal) outcome {
	p.t.Helper()
	if sig != 0 {
		_ = p.cmd.Process.Signal(sig)
	}
	select {
	case <-p.done:
	case <-time.After(testbed.Patience(p.t)):
		p.t.Fatalf("does not end:\n%s", p.text())
	}
	return outcome{code: p.cmd.ProcessState.ExitCode(), stdout: p.out.String(), stderr: p.text()}
}

// serve starts the shard processes of a cluster, one for each, and waits until they are ready.
func (c *cluster) serve(t *testing.T, args ...string) []*child {
	t.Helper()
	all := make([]*child, len(c.addrs))
	for i := range all {
		all[i] = start(t, "", append([]string{"ps", c.job, "--shard", fmt.Sprint(i)}, args...)...)
	}
	ready := fmt.Sprintf("%d shards are ready", len(all))
	if len(all) == 1 {
		ready = "1 shard is ready"
	}
	all[0].says(ready)
	return all
}

// failure is the error in the envelope of --json.
func failure(t *testing.T, o outcome) (f struct{ Code, Message string }) {
	t.Helper()
	env := struct {
		OK    bool
		Error any
	}{Error: &f}
	if err := json.Unmarshal([]byte(o.stdout), &env); err != nil || env.OK {
		t.Fatalf("%v in %s", err, o.stdout)
	}
	return f
}

// within checks that a command has waited for about as long as its job says, which is a second, and not for the 30 s that ps.retry is where a job says nothing.
func within(t *testing.T, o outcome) {
	t.Helper()
	if o.took > 28*time.Second {
		t.Errorf("it took %v", o.took)
	}
}

func TestShardsThatAreNotThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	o := monolith(t, "train", c.job)
	o.wants(t, 3, "shard 0 at "+c.addrs[0], "connection refused", "tried for ", "ps.retry", "monolith ps JOB.yaml --shard 0")
	within(t, o)
	o = monolith(t, "train", c.job, "--json")
	if f := failure(t, o); o.code != 3 || f.Code != "unavailable" || !strings.Contains(f.Message, c.addrs[0]) {
		t.Errorf("exit code %d: %+v", o.code, f)
	}
	// Who asks waits as long as --wait says, and not as workers do.
	o = monolith(t, "snapshot", "take", c.job, "--wait", "0", "--set", "ps.retry=1h")
	o.wants(t, 3, "shard 0 at "+c.addrs[0], "connection refused", "tried for", "monolith ps JOB.yaml --shard 0", "--wait=5m waits")
	zero := start(t, "", "ps", c.job, "--shard", "0").says("shards not all there")
	o = monolith(t, "train", c.job)
	o.wants(t, 3, "shard 0 at "+c.addrs[0], "waits itself", "shard 1 at "+c.addrs[1], "connection refused", "ps.retry")
	within(t, o)
	monolith(t, "snapshot", "take", c.job, "--wait", "2s").wants(t, 3, "shard 1 at "+c.addrs[1], "connection refused", "--wait=5m waits")
	zero.end(syscall.SIGTERM).wants(t, 0, "taking a last snapshot", "no last snapshot could be taken", c.addrs[1])
}

// TestShardThatDoesNotComeBack loses a shard in the middle for good: the worker fails in time, and what it trained
// before is where the next one continues.
func TestShardThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	for dies := range 2 {
		t.Run(fmt.Sprint("shard=", dies), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2, 3000, 3000, "")
			shards := c.serve(t)
			worker := start(t, "", "train", c.job)
			waitFor(t, func() bool { return len(c.snapshots()) > 1 })
			shards[dies].end(syscall.SIGKILL)
			worker.end(0).wants(t, 3, fmt.Sprintf("shard %d at %s", dies, c.addrs[dies]), "tried for ", "ps.retry", fmt.Sprint("--shard ", dies))
			report := "snapshot restored"
			if dies == 0 { // the coordinator's, which reports for all
				report = "continuing from snapshot"
			}
			start(t, "", "ps", c.job, "--shard", fmt.Sprint(dies)).says(report)
			monolith(t, "train", c.job).wants(t, 0, "continuing from snapshot")
			c.exact(t)
		})
	}
}

func TestWrongCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	c.serve(t)
	const same = "start all processes of one source with the same job file"
	for _, x := range []struct {
		name, set string
		words     []string
	}{
		{"job", "name=other", []string{`the caller has "other", shard 0 another`, same}},
		{"plan", "train.batch=20", []string{`the plans of source "synthetic" differ`, "batch", "the caller has plan ", same}},
		{"features", "parse.features[0].slot=7", []string{"the features differ (parse.features, label, weight)", same}},
		{"label", "parse.label.positive=>= 1", []string{"the features differ (parse.features, label, weight)", same}},
		{"layout", "model.fm.dim=4", []string{"parameters differ", "model", same}},
		{"order", "ps.addresses=" + c.addrs[1] + "," + c.addrs[0], []string{c.addrs[1], "this is shard 1 and was called as shard 0", "ps.addresses"}},
	} {
		monolith(t, "train", c.job, "--set", x.set, "--set", "ps.retry=1h").wants(t, 2, x.words...) // which is not waited for
	}
	o := monolith(t, "train", c.job, "--set", "name=other", "--json")
	if f := failure(t, o); o.code != 2 || f.Code != "config" || !strings.Contains(f.Message, "other names") {
		t.Errorf("exit code %d: %+v", o.code, f)
	}

	// The same shard twice.
	monolith(t, "ps", c.job, "--shard", "1").wants(t, 3, "shard 1 is served already", filepath.Join(c.dir, "run"))
	monolith(t, "ps", c.job, "--shard", "1", "--set", "dir="+t.TempDir()).wants(t, 3, c.addrs[1], "address already in use", "--listen")
	// How many shards there are, and where, shard 0 says.
	monolith(t, "train", c.job, "--set", "ps.addresses="+c.addrs[0]).wants(t, 0)
	c.exact(t)
}

// TestSecondShardZero has another dir: it gets an error with the name and ends, and the first continues.
func TestSecondShardZero(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	c.serve(t)
	other := t.TempDir()
	second := start(t, "", "ps", c.job, "--shard", "0", "--listen", "127.0.0.1:0", "--set", "dir="+other)
	second.end(0).wants(t, 2, "shard 1 at "+c.addrs[1], other, filepath.Join(c.dir, "run"), "one shard 0 only")
	monolith(t, "train", c.job).wants(t, 0)
	c.exact(t)
}

// TestTwoRunsOneDir: the second run with one dir ends with 3, which a supervisor answers by trying again, and leaves the
// first alone, whether that trains with shards of its own or serves them.
func TestTwoRunsOneDir(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 4000, 50, "")
	alone := c.write(t, "alone.yaml", "run", "")
	first := start(t, "", "train", alone)
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "run", "snapshots"))
		return err == nil
	})
	for _, args := range [][]string{{"train", alone}, {"ps", c.job}, {"train", alone, "--resume=false"}} {
		monolith(t, args...).wants(t, 3, "another process", filepath.Join(c.dir, "run"), "wait for it to end, or give this job another dir")
	}
	first.end(syscall.SIGTERM).wants(t, 143)
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testbed.Patience(t)); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never comes")
		}
	}
}

// TestOpenToStrangers: a shard listens beyond this machine only where strangers are kept away, or if the job allows it.
func TestOpenToStrangers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 100, 0, "")
	for _, listen := range []string{"0.0.0.0:0", "[::]:0"} {
		monolith(t, "ps", c.job, "--listen", listen).wants(t, 2, listen, "ps.tls", "ps.token", "--insecure")
	}
	for _, args := range [][]string{{"--listen", "127.0.0.1:0"}, {"--listen", "0.0.0.0:0", "--insecure"}} {
		p := start(t, "", append([]string{"ps", c.job}, args...)...)
		p.says("listens at")
		p.end(syscall.SIGTERM).wants(t, 0)
	}
}

// TestFullTables: tables that hold no more end the run with exit code 3, saying which and what to do, in one process and where
// the shard is another, which stays and keeps what it has; and a snapshot that does not fit is no model to evaluate.
func TestFullTables(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 20000, 0, "")
	full := func(advice string) []string {
		return []string{"table embedding: it has ", "table is full", "(ps.memory; " + advice}
	}
	trained := full("raise it, or spread the table over more shards")
	// Without snapshots under way, which fail for want of memory too and would end the shard before the worker is notified.
	set := []string{"--set", "ps.memory=256KiB", "--set", "model={fm: {dim: 64}}", "--set", "snapshot.every=0s"}
	alone := c.write(t, "alone.yaml", "alone", "eval: {source: {synthetic: {examples: 100}}}\n")
	monolith(t, append([]string{"train", alone}, set...)...).wants(t, 3, trained...)
	shard := start(t, "", append([]string{"ps", c.job}, set...)...)
	shard.says("listens at")
	monolith(t, append([]string{"train", c.job}, set...)...).wants(t, 3, append(trained, "shard 0")...)
	shard.end(syscall.SIGTERM).wants(t, 0)
	set[1] = "ps.memory=64MiB"
	monolith(t, append([]string{"train", alone}, set...)...).wants(t, 0)
	set[1] = "ps.memory=256KiB"
	monolith(t, append([]string{"eval", alone}, set...)...).wants(t, 3, full("all rows of the snapshot are read into this process: raise it, or predict with a native export")...)
}

// TestCrashedShard ends by a signal, so that a supervisor starts it again.
func TestCrashedShard(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 100, 0, "")
	p := start(t, "", "ps", c.job)
	p.says("listens at")
	if o := p.end(syscall.SIGQUIT); o.code != 128+int(syscall.SIGABRT) && o.code != -1 {
		t.Errorf("exit code %d after a crash, want death by SIGABRT", o.code)
	}
}

// TestShardsOfTwoJobs has shards of two jobs in one cluster: the coordinator says so and ends.
func TestShardsOfTwoJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1000, 0, "")
	start(t, "", "ps", c.job, "--shard", "1", "--set", "name=other", "--set", "dir="+t.TempDir()).says("listens")
	zero := start(t, "", "ps", c.job, "--shard", "0")
	zero.end(0).wants(t, 2, "shard 1 at "+c.addrs[1], `the caller has "small", shard 1 another`)

	// Shards 1 and 2 in each other's place.
	c = newCluster(t, 3, 1000, 0, "")
	swapped := "ps.addresses=" + strings.Join([]string{c.addrs[0], c.addrs[2], c.addrs[1]}, ",")
	for _, i := range []string{"1", "2"} {
		start(t, "", "ps", c.job, "--shard", i, "--set", swapped).says("listens")
	}
	start(t, "", "ps", c.job, "--shard", "0").end(0).wants(t, 2, "ps.addresses", "another order")
}

// TestDamagedStateOfShards damages what all shards go back to: the cut before is used, and logged.
func TestDamagedStateOfShards(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"none", "wal"} {
		for _, damage := range []string{"short", "flipped"} {
			t.Run(durability+"/"+damage, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, 2, 3000, 3000, ", durability: "+durability)
				shards := c.serve(t)
				worker := start(t, "", "train", c.job)
				waitFor(t, func() bool { return len(c.snapshots()) > 2 })
				for _, p := range append(shards, worker) {
					p.end(syscall.SIGKILL)
				}
				newest := c.snapshots()[len(c.snapshots())-1]
				spoil(t, filepath.Join(newest, "rows-*"), damage)
				if durability == "wal" {
					// A file that ends early is a torn end, for all that anybody can tell, and no damage.
					spoil(t, filepath.Join(c.dir, "run", "wal", "shard-0001", "*"), "flipped")
				}
				shards = c.serve(t)
				shards[0].says("; passed over").says(newest)
				if durability == "wal" {
					shards[1].says("log cannot be replayed")
				}
				monolith(t, "train", c.job).wants(t, 0, "continuing from snapshot")
				c.exact(t)
				if durability == "wal" || damage == "flipped" {
					return
				}
				for _, p := range shards {
					p.end(syscall.SIGTERM)
				}
				for _, s := range c.snapshots() {
					spoil(t, filepath.Join(s, "*"), damage)
				}
				start(t, "", "ps", c.job).end(0).wants(t, 1, "no snapshot in "+filepath.Join(c.dir, "run"), "is whole", "to start over, move them away")
				monolith(t, "train", c.job).wants(t, 3, c.addrs[0])
			})
		}
	}
}

// spoil damages every file that matches.
func spoil(t *testing.T, pattern, damage string) {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			continue
		}
		if damage == "short" {
			data = data[:len(data)-min(len(data), 5)]
		} else {
			data[len(data)/2] ^= 4
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMessageAboveTheLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 10_000, 0, "")
	large := []string{"--set", "train.batch=4000", "--set", "model.deepfm.dim=32", "--set", "model.deepfm.hidden=32"}
	small := []string{"--set", "ps.max_message=64KiB"}
	c.serve(t, append(large, small...)...)
	for where, args := range map[string][]string{"client": append(large, small...), "server": large} {
		o := monolith(t, append([]string{"train", c.job}, args...)...)
		o.wants(t, 2, " bytes, the limit is 65536", "of the "+where, "ps.max_message", "train.batch", c.addrs[0])
	}
}

// TestOtherRelease calls a shard as a program of another version of the protocol, and of none, does.
func TestOtherRelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1000, 0, "")
	c.serve(t)
	cc, err := wire.NewClient(c.addrs[0], wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	next := fmt.Sprint(wire.ProtocolVersion + 1)
	for version, want := range map[string]string{next: "the caller speaks version " + next, "": "the caller speaks version none"} {
		ctx := t.Context()
		if version != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "monolith-version", version)
		}
		_, err := psv1.NewCoordinatorClient(cc).Info(ctx, &psv1.InfoRequest{})
		for _, w := range []string{want, fmt.Sprintf("shard 0 version %d", wire.ProtocolVersion), "same release"} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("version %q: %v, want %q", version, err, w)
			}
		}
	}
}

// TestOtherServers has something else at a shard's address.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	var held []net.Conn
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			held = append(held, conn) // open until the process ends
		}
	}()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(web) }()
	t.Cleanup(func() { _ = server.Close() })
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for name, x := range map[string]struct{ addr, want string }{
		"silent": {silent.Addr().String(), "says nothing"},
		"web":    {web.Addr().String(), "no server of shards"},
		"kafka":  {b.Addrs()[0], "no server of shards"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1, 1000, 0, "")
			o := monolith(t, "train", c.job, "--set", "ps.addresses="+x.addr)
			o.wants(t, 3, x.addr, x.want, "tried for", "ps.retry")
			within(t, o)
		})
	}
}

// issue writes a certificate for name, signed by a parent or by itself, and its key.
func issue(t *testing.T, dir, file, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: file}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		BasicConstraintsValid: true,
	}
	if parent == nil {
		tmpl.IsCA, tmpl.KeyUsage, parent, parentKey = true, x509.KeyUsageCertSign, tmpl, key
	} else {
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(name); ip != nil {
			tmpl.IPAddresses = []net.IP{ip}
		} else {
			tmpl.DNSNames = []string{name}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for ext, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, file+ext), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestWhoIsAdmitted has processes with other tokens and certificates: each gets at once what does not fit.
func TestWhoIsAdmitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, caKey := issue(t, dir, "ca", "", nil, nil)
	issue(t, dir, "stranger", "", nil, nil)
	issue(t, dir, "node", "127.0.0.1", ca, caKey)
	issue(t, dir, "elsewhere", "elsewhere.example", ca, caKey)
	for name, text := range map[string]string{"token": "right", "wrong": "left"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	tls := fmt.Sprintf(", tls: {cert: %s, key: %s, ca: %s}", file("node.pem"), file("node.key"), file("ca.pem"))
	token := fmt.Sprintf(", token: {file: %s}", file("token"))
	c := newCluster(t, 2, 1000, 0, tls+token)
	section := func(name, extra string) string {
		return c.write(t, name, "run", fmt.Sprintf("ps: {addresses: [%s], retry: 1h, lease: 2s%s}\n", strings.Join(c.addrs, ", "), extra))
	}
	wants := func(job string, words ...string) {
		t.Helper()
		monolith(t, "train", job).wants(t, 2, words...) // without waiting for ps.retry
	}
	shards := c.serve(t)
	const hint = "ps.tls and ps.token must fit on both sides"
	wants(section("wrong-token.yaml", tls+strings.Replace(token, "/token", "/wrong", 1)), c.addrs[0], "the token is not the server's", hint)
	wants(section("no-token.yaml", tls), c.addrs[0], "wants a token, and none was sent", hint)
	wants(section("plain.yaml", token), c.addrs[0], "the server wants TLS", hint)
	wants(section("stranger.yaml", strings.Replace(tls, "/ca.pem", "/stranger.pem", 1)+token), c.addrs[0], "certificate is not trusted", "unknown authority", hint)
	wants(section("nameless.yaml", fmt.Sprintf(", tls: {ca: %s}", file("ca.pem"))+token), c.addrs[0], "wants another client certificate", hint)
	wants(section("name.yaml", strings.Replace(tls, "ca:", "server_name: elsewhere.example, ca:", 1)+token), c.addrs[0], "certificate is not trusted", "elsewhere.example", hint)
	wants(section("missing.yaml", strings.Replace(tls, "/ca.pem", "/nothing.pem", 1)+token), "ps.tls", "nothing.pem")
	wants(section("unset.yaml", tls+", token: {env: MONOLITH_NO_SUCH_TOKEN}"), "ps.token", "MONOLITH_NO_SUCH_TOKEN")
	monolith(t, "train", c.job).wants(t, 0)
	for _, p := range shards {
		p.end(syscall.SIGTERM).wants(t, 0)
	}

	one := start(t, "", "ps", section("elsewhere.yaml", strings.ReplaceAll(tls, "/node", "/elsewhere")+token), "--shard", "1").says("listens")
	start(t, "", "ps", c.job, "--shard", "0").end(0).wants(t, 2, c.addrs[1], "certificate is not trusted", hint)
	one.end(syscall.SIGTERM).wants(t, 0)
	start(t, "", "ps", section("plain-shards.yaml", token)).says(" shards are ready")
	wants(c.job, c.addrs[0], "the server does not speak TLS", hint)
}

// TestFolderNotShared has shards that see different folders under the job's dir.
func TestFolderNotShared(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 2000, 4000, "")
	text, err := os.ReadFile(c.job)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(filepath.Join(c.dir, "run")), []byte("run"), 1)
	// Shard 0 would end after a few failures; here the worker is to be notified.
	if text = bytes.Replace(text, []byte("snapshot: {"), []byte("snapshot: {tolerate: 0, "), 1); !bytes.Contains(text, []byte("tolerate")) {
		t.Fatal("the job has no section snapshot")
	}
	if err := os.WriteFile(c.job, text, 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, t.TempDir(), "ps", c.job, "--shard", "1").says("listens")
	zero := start(t, t.TempDir(), "ps", c.job, "--shard", "0").says(" shards are ready")
	const why = "snapshots need a folder that all shards see under one name"
	worker := start(t, t.TempDir(), "train", c.job)
	zero.says("snapshot failed").says(why)
	worker.end(0).wants(t, 3, "the last snapshot could not be taken", "shard 1 of 2 at "+c.addrs[1]+" does not see the folder", why, "train again")
}

// TestReplacedWorker starts a worker under the name of one that runs.
func TestReplacedWorker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 60_000, 3000, "") // the second worker has 20 s to start in
	c.serve(t)
	first := start(t, "", "train", c.job, "--worker", "w")
	waitFor(t, func() bool { return len(c.snapshots()) > 1 })
	second := start(t, "", "train", c.job, "--worker", "w")
	o := first.end(0)
	o.wants(t, 1, "worker w", "replaced, by one of the same name")
	if n := strings.Count(o.stderr, "was replaced"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, o.stderr)
	}
	second.end(0).wants(t, 0)
	c.exact(t)
}

func TestMistakesInShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	alone := c.write(t, "alone.yaml", "run", "")
	typo := c.write(t, "typo.yaml", "run", "ps: {addresses: [127.0.0.1:7000], retyr: 1s}\n")
	for _, x := range []struct {
		args  []string
		words []string
	}{
		{[]string{alone}, []string{"ps.addresses is not set", "such as ["}},
		{[]string{c.job, "--shard", "7"}, []string{"there is no shard 7", "ps.addresses has 2"}},
		{[]string{c.job, "--listen", "127.0.0.1:7000"}, []string{"--listen is for one shard", "--shard"}},
		{[]string{c.job, "--shard", "1", "--listen", "nowhere"}, []string{"--listen", `"nowhere"`, "host:port"}},
		{[]string{c.job, "--set", "ps.addresses=localhost"}, []string{"ps.addresses[0]", `"localhost"`, "host:port"}},
		{[]string{c.job, "--set", "ps.addresses=localhost:70000"}, []string{"ps.addresses[0]", "70000"}},
		{[]string{c.job, "--set", "ps.addresses=a:1,a:1"}, []string{"ps.addresses[1]", "two shards"}},
		{[]string{typo}, []string{"typo.yaml:", "retyr", `did you mean "retry"`}},
		{[]string{c.job, "--set", "ps.durability=wall"}, []string{"ps.durability", `did you mean "wal"`}},
		{[]string{c.job, "--shard", "1", "--resume=false"}, []string{"--resume=false", "shard 0"}},
	} {
		monolith(t, append([]string{"ps"}, x.args...)...).wants(t, 2, x.words...)
		if f := failure(t, monolith(t, append([]string{"ps", "--json"}, x.args...)...)); f.Code != "config" {
			t.Errorf("%v: %+v", x.args, f)
		}
	}
	monolith(t, "train", c.job, "--resume=false").wants(t, 2, "monolith ps --resume=false")
}

// TestSignalsOfShards ends shards in order, and at once.
func TestSignalsOfShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	all := start(t, "", "ps", c.job).says(" shards are ready")
	o := all.end(syscall.SIGTERM)
	o.wants(t, 0, "SIGTERM: taking a last snapshot; then the shards of this process end (once more to stop at once)", "snapshot "+c.dir)
	if strings.Contains(o.stderr, "training") || !strings.Contains(o.stdout, "served shard") {
		t.Errorf("these are not a server's words:\n%s%s", o.stdout, o.stderr)
	}
	one := start(t, "", "ps", c.job, "--shard", "1").says("listens")
	o = one.end(os.Interrupt.(syscall.Signal))
	o.wants(t, 0, "SIGINT: the shards of this process end", "workers wait 1s for them to come back")

	// A shard that does not answer keeps a last snapshot of what has changed waiting: the second signal does not.
	held := start(t, "", "ps", c.job, "--shard", "1").says("listens")
	zero := start(t, "", "ps", c.job, "--shard", "0", "--set", "snapshot.every=1h").says(" shards are ready")
	monolith(t, "ps", "reinitialize", c.job, "embedding", "3:17", "3:18", "3:19", "3:20").wants(t, 0)
	held.stop()
	_ = zero.cmd.Process.Signal(syscall.SIGTERM)
	zero.says("taking a last snapshot")
	zero.end(syscall.SIGINT).wants(t, 128+int(syscall.SIGINT), "stopped at once by a second SIGINT")
}

// TestHealthOfShards asks shards how they are, as those who watch over processes do.
func TestHealthOfShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1000, 0, "")
	clients := make([]healthpb.HealthClient, 2)
	for i, addr := range c.addrs {
		cc, err := wire.NewClient(addr, wire.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		clients[i] = healthpb.NewHealthClient(cc)
		if i > 0 {
			continue
		}
		defer func() {
			st, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
			if err := st.Send(ask); err != nil {
				t.Fatal(err)
			}
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range r.GetListServicesResponse().GetService() {
				names = append(names, s.GetName())
			}
			for _, want := range []string{"grpc.health.v1.Health", "monolith.ps.v1.Coordinator", "monolith.ps.v1.Shard"} {
				if !slices.Contains(names, want) {
					t.Errorf("the services are %v, without %s", names, want)
				}
			}
		}()
	}
	status := func(i int) healthpb.HealthCheckResponse_ServingStatus {
		ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
		defer cancel()
		r, err := clients[i].Check(ctx, &healthpb.HealthCheckRequest{})
		if err != nil && !errors.Is(err, context.Canceled) {
			return healthpb.HealthCheckResponse_UNKNOWN
		}
		return r.GetStatus()
	}
	start(t, "", "ps", c.job, "--shard", "0").says("shards not all there")
	if got := status(0); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a shard that waits for another is %v", got)
	}
	start(t, "", "ps", c.job, "--shard", "1").says("listens")
	for i := range clients {
		waitFor(t, func() bool { return status(i) == healthpb.HealthCheckResponse_SERVING })
	}
}
