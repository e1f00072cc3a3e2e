// Package realflink starts Beam's Flink job server for tests, with a Flink cluster inside it, from Maven artifacts. It needs
// java (17 or newer) and mvn; without them a test ends as testbed.Require says for «flink».
//
// The jars (157 MiB) are fetched once into the user's cache folder. A job server takes 3 to 4 seconds to start and up to
// 1 GiB of memory, so a package's tests share one.
package realflink

import (
	"context"
	_ "embed" // for the file beside this one
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

//go:embed pom.xml
var pom []byte

// Version is that of the runner's libraries, and of the Flink that they bring.
const Version = "2.70.0-flink-1.19"

// JobServer is a job server with its Flink cluster: one inside it, which begins and ends with each job, or that of a [Cluster].
type JobServer struct {
	// Endpoint takes jobs, REST is Flink's own interface, of an embedded cluster while a job runs; both host:port.
	Endpoint, REST string

	process *jvm.Process
}

// Start starts a job server with an embedded cluster that ends with the test. A job that fails is begun again by Flink, up to ten
// times, a second after each failure.
func Start(t testing.TB) *JobServer {
	t.Helper()
	libs := libraries(t)
	ports := freePorts(t, 2)
	dir := t.TempDir()
	writeConf(t, dir, ports[1],
		"taskmanager.memory.network.max: 256mb",
		"taskmanager.memory.managed.size: 64mb",
	)
	return startJobServer(t, libs, dir, "[local]", ports[0], ports[1])
}

// Cluster is a session cluster of processes: a job manager, task managers and a job server.
type Cluster struct {
	*JobServer
	// Managers are the task managers, each with as many slots as Slots says.
	Managers []*jvm.Process
	// Dir is the folder of checkpoints and savepoints.
	Dir string

	libs, conf string
	started    int // task managers so far
}

// Slots is how many splits a task manager of a [Cluster] can read at once.
const Slots = 8

// StartCluster starts a session cluster that ends with the test: about 3 GiB of memory with two task managers, and 10 s. Jobs are begun
// again as by [Start]. A task manager that is gone is noticed after 5 s at the latest.
func StartCluster(t testing.TB, managers int) *Cluster {
	t.Helper()
	ports := freePorts(t, 4)
	c := &Cluster{libs: libraries(t), Dir: t.TempDir()}
	c.conf = c.Dir
	writeConf(t, c.conf, ports[1],
		"jobmanager.rpc.address: 127.0.0.1",
		"jobmanager.rpc.port: "+ports[2],
		"jobmanager.bind-host: 127.0.0.1",
		"jobmanager.memory.process.size: 1g",
		"blob.server.port: "+ports[3],
		"taskmanager.host: 127.0.0.1",
		"taskmanager.bind-host: 127.0.0.1",
		fmt.Sprintf("taskmanager.numberOfTaskSlots: %d", Slots),
		"taskmanager.cpu.cores: 1.0",
		"taskmanager.memory.task.heap.size: 384m",
		"taskmanager.memory.task.off-heap.size: 64m",
		"taskmanager.memory.framework.heap.size: 128m",
		"taskmanager.memory.framework.off-heap.size: 128m",
		"taskmanager.memory.managed.size: 32m",
		"taskmanager.memory.network.min: 64m",
		"taskmanager.memory.network.max: 64m",
		"taskmanager.memory.jvm-metaspace.size: 256m",
		"taskmanager.memory.jvm-overhead.min: 192m",
		"taskmanager.memory.jvm-overhead.max: 192m",
		"heartbeat.interval: 1000",
		"heartbeat.timeout: 5000",
		"cluster.evenly-spread-out-slots: true",
		"classloader.resolve-order: parent-first", // it has Beam's classes itself
	)
	manager := c.start(t, "job-manager", "127.0.0.1:"+ports[1], nil,
		"-Xmx512m", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint", "--configDir", c.conf)
	t.Cleanup(func() { kill(t, manager, "job manager") })
	c.JobServer = startJobServer(t, c.libs, c.conf, "127.0.0.1:"+ports[1], ports[0], ports[1])
	t.Cleanup(func() { // those that a part of the test has added too: the next part needs them
		for _, m := range c.Managers {
			kill(t, m, "task manager")
		}
	})
	for range managers {
		c.AddTaskManager(t)
	}
	return c
}

// AddTaskManager starts one more, which ends with the cluster, and returns when that has it.
func (c *Cluster) AddTaskManager(t testing.TB) {
	t.Helper()
	c.started++
	before, err := c.registered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// One more may not do: Flink may have yet to find that one is gone.
	ready := func(ctx context.Context) error {
		now, err := c.registered(ctx)
		if err == nil && !slices.ContainsFunc(now, func(id string) bool { return !slices.Contains(before, id) }) {
			err = fmt.Errorf("realflink: none is registered beside %q", before)
		}
		return err
	}
	m := c.start(t, fmt.Sprintf("task-manager-%d", c.started), c.REST, ready,
		"-Xmx512m", "-XX:MaxDirectMemorySize=256m", "org.apache.flink.runtime.taskexecutor.TaskManagerRunner", "--configDir", c.conf)
	c.Managers = append(c.Managers, m)
}

// KillOldest ends the task manager that was started first, as kill -9 does.
func (c *Cluster) KillOldest(t testing.TB) {
	t.Helper()
	if err := c.Managers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	c.Managers = c.Managers[1:]
}

// Fetched counts the task managers that have had a task of some job, and with it the job's jars.
func (c *Cluster) Fetched(t testing.TB) (n int) {
	t.Helper()
	for _, m := range c.Managers {
		has, err := m.Logged("Loading JAR files for task")
		if err != nil {
			t.Fatal(err)
		}
		if has {
			n++
		}
	}
	return n
}

// registered are the task managers that Flink knows of.
func (c *Cluster) registered(ctx context.Context) (ids []string, err error) {
	var all struct {
		Managers []struct {
			ID string `json:"id"`
		} `json:"taskmanagers"`
	}
	err = c.get(ctx, "/taskmanagers", &all)
	for _, m := range all.Managers {
		ids = append(ids, m.ID)
	}
	return ids, err
}

// start starts a process of the cluster. The first words of args that begin with a dash are options of java.
func (c *Cluster) start(t testing.TB, name, addr string, ready func(context.Context) error, args ...string) *jvm.Process {
	t.Helper()
	n := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	all := slices.Concat(javaOptions("256m"), args[:n], []string{"-cp", filepath.Join(c.libs, "*")}, args[n:])
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
	defer cancel()
	p, err := jvm.Start(ctx, c.conf, filepath.Join(c.conf, name+".log"), addr, ready, all...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Savepoint stops a job with a savepoint, and returns where that is.
func (c *Cluster) Savepoint(ctx context.Context, job string) (string, error) {
	var trigger struct {
		ID string `json:"request-id"`
	}
	body := fmt.Sprintf(`{"drain":false,"targetDirectory":"file://%s"}`, filepath.Join(c.Dir, "savepoints"))
	if err := c.send(ctx, http.MethodPost, "/jobs/"+job+"/stop", body, &trigger); err != nil {
		return "", err
	}
	for {
		var state struct {
			Status struct {
				ID string `json:"id"`
			} `json:"status"`
			Operation struct {
				Location string          `json:"location"`
				Failure  json.RawMessage `json:"failure-cause"`
			} `json:"operation"`
		}
		if err := c.get(ctx, "/jobs/"+job+"/savepoints/"+trigger.ID, &state); err != nil {
			return "", err
		}
		switch {
		case state.Operation.Location != "":
			return state.Operation.Location, nil
		case state.Status.ID == "COMPLETED":
			return "", fmt.Errorf("realflink: savepoint: %s", jvm.Tail(state.Operation.Failure, 600))
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Retained returns the newest checkpoint that is kept of a job.
func (s *JobServer) Retained(ctx context.Context, job string) (string, error) {
	var found struct {
		Latest struct {
			Completed struct {
				Path string `json:"external_path"`
			} `json:"completed"`
		} `json:"latest"`
	}
	if err := s.get(ctx, "/jobs/"+job+"/checkpoints", &found); err != nil {
		return "", err
	}
	if found.Latest.Completed.Path == "" {
		return "", errors.New("realflink: the job has no checkpoint yet")
	}
	return found.Latest.Completed.Path, nil
}

// libraries returns the folder of jars, or ends the test.
func libraries(t testing.TB) string {
	t.Helper()
	jvm.Need(t, "flink")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	libs, err := jvm.Libraries(ctx, "flink-job-server-"+Version, pom)
	if err != nil {
		testbed.Require(t, "flink", err.Error())
	}
	return libs
}

func freePorts(t testing.TB, n int) []string {
	t.Helper()
	ports, err := jvm.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// writeConf writes Flink's configuration into a folder, where checkpoints go too.
func writeConf(t testing.TB, dir, rest string, more ...string) {
	t.Helper()
	conf := append([]string{
		"rest.port: " + rest,
		"rest.bind-address: 127.0.0.1",
		"rest.address: 127.0.0.1",
		"state.checkpoints.dir: file://" + filepath.Join(dir, "checkpoints"),
		"execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION",
		"restart-strategy.type: fixed-delay",
		"restart-strategy.fixed-delay.attempts: 10",
		"restart-strategy.fixed-delay.delay: 1 s",
	}, more...)
	if err := os.WriteFile(filepath.Join(dir, "flink-conf.yaml"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func javaOptions(metaspace string) []string {
	out := []string{
		"-XX:MaxMetaspaceSize=" + metaspace, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	}
	for _, p := range []string{"lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"} {
		out = append(out, "--add-opens=java.base/java."+p+"=ALL-UNNAMED")
	}
	return append(out, "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/sun.net.util=ALL-UNNAMED")
}

func startJobServer(t testing.TB, libs, dir, master, port, rest string) *JobServer {
	t.Helper()
	s := &JobServer{Endpoint: "127.0.0.1:" + port, REST: "127.0.0.1:" + rest}
	args := append(javaOptions("384m"), "-Xmx1g", "-cp", filepath.Join(libs, "*"), "org.apache.beam.runners.flink.FlinkJobServerDriver",
		"--flink-master="+master, "--flink-conf-dir="+dir, "--job-host=127.0.0.1", "--job-port="+port,
		"--artifact-port=0", "--expansion-port=0", "--artifacts-dir="+filepath.Join(dir, "artifacts"))
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
	defer cancel()
	var err error
	if s.process, err = jvm.Start(ctx, dir, filepath.Join(dir, "job-server.log"), s.Endpoint, nil, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, s.process, "job server") })
	return s
}

// kill ends a process, and shows what it said last if the test has failed.
func kill(t testing.TB, p *jvm.Process, name string) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("end of the %s's log:\n%s", name, p.LogTail())
	}
}

// Kill ends the job server, and a cluster inside it, as kill -9 does.
func (s *JobServer) Kill() error { return s.process.Kill() }

// Job is what Flink tells of a job.
type Job struct {
	ID    string `json:"jid"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// Jobs asks Flink for the jobs that run; without one there is no cluster, and none is returned.
func (s *JobServer) Jobs(ctx context.Context) ([]Job, error) {
	var all struct {
		Jobs []Job `json:"jobs"`
	}
	if err := s.get(ctx, "/jobs/overview", &all); err != nil {
		return nil, err
	}
	return all.Jobs, nil
}

// Checkpoints counts the completed checkpoints of a job, and how often it was restored.
func (s *JobServer) Checkpoints(ctx context.Context, id string) (completed, restored int, err error) {
	var found struct {
		Counts struct {
			Completed int `json:"completed"`
			Restored  int `json:"restored"`
		} `json:"counts"`
	}
	err = s.get(ctx, "/jobs/"+id+"/checkpoints", &found)
	return found.Counts.Completed, found.Counts.Restored, err
}

// CancelAll cancels all jobs, and returns when they have ended.
func (s *JobServer) CancelAll(t testing.TB) {
	t.Helper()
	for until := time.Now().Add(testbed.Patience(t)); ; time.Sleep(50 * time.Millisecond) {
		jobs, err := s.Jobs(t.Context())
		left := slices.DeleteFunc(jobs, func(j Job) bool { return j.State == "CANCELED" || j.State == "FINISHED" || j.State == "FAILED" })
		if err == nil && len(left) == 0 || errors.Is(err, syscall.ECONNREFUSED) {
			return // an embedded cluster ends with its job
		}
		if time.Now().After(until) {
			t.Fatalf("realflink: jobs that do not end: %+v, %v", left, err)
		}
		for _, job := range left {
			if job.State == "RUNNING" || job.State == "RESTARTING" {
				if err := s.call(t.Context(), http.MethodPatch, "/jobs/"+job.ID+"?mode=cancel", nil); err != nil {
					t.Logf("cancel: %v", err)
				}
			}
		}
	}
}

func (s *JobServer) get(ctx context.Context, path string, into any) error {
	return s.call(ctx, http.MethodGet, path, into)
}

func (s *JobServer) call(ctx context.Context, method, path string, into any) error {
	return s.send(ctx, method, path, "", into)
}

func (s *JobServer) send(ctx context.Context, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.REST+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // it was read
	b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return err
	}
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("realflink: %s: %s: %s", path, r.Status, jvm.Tail(b, 300))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}
