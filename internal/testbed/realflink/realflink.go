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
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

//go:embed pom.xml
var pom []byte

// Version is that of the runner's libraries, and of the Flink that they bring.
const Version = "2.70.0-flink-1.19"

// JobServer is a job server with an embedded cluster, which begins and ends with each job.
type JobServer struct {
	// Endpoint takes jobs, REST is Flink's own interface while a job runs; both host:port.
	Endpoint, REST string

	process *jvm.Process
}

// Start starts a job server that ends with the test. A job that fails is begun again by Flink, up to ten times, a second
// after each failure.
func Start(t testing.TB) *JobServer {
	t.Helper()
	jvm.Need(t, "flink")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	libs, err := jvm.Libraries(ctx, "flink-job-server-"+Version, pom)
	if err != nil {
		testbed.Require(t, "flink", err.Error())
	}
	dir := t.TempDir()
	ports, err := jvm.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	s := &JobServer{Endpoint: "127.0.0.1:" + ports[0], REST: "127.0.0.1:" + ports[1]}
	conf := strings.Join([]string{
		"rest.port: " + ports[1],
		"rest.bind-address: 127.0.0.1",
		"rest.address: 127.0.0.1",
		"state.checkpoints.dir: file://" + filepath.Join(dir, "checkpoints"),
		"execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION",
		"restart-strategy.type: fixed-delay",
		"restart-strategy.fixed-delay.attempts: 10",
		"restart-strategy.fixed-delay.delay: 1 s",
		"taskmanager.memory.network.max: 256mb",
		"taskmanager.memory.managed.size: 64mb",
	}, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "flink-conf.yaml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-Xmx1g", "-XX:MaxMetaspaceSize=384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(libs, "*"), "org.apache.beam.runners.flink.FlinkJobServerDriver",
		"--flink-master=[local]", "--flink-conf-dir=" + dir, "--job-host=127.0.0.1", "--job-port=" + ports[0],
		"--artifact-port=0", "--expansion-port=0", "--artifacts-dir=" + filepath.Join(dir, "artifacts"),
	}
	if s.process, err = jvm.Start(ctx, dir, filepath.Join(dir, "job-server.log"), s.Endpoint, nil, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.process.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("end of the job server's log:\n%s", s.process.LogTail())
		}
	})
	return s
}

// Kill ends the job server and its cluster as kill -9 does.
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
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		jobs, err := s.Jobs(t.Context())
		if err != nil || len(jobs) == 0 {
			return // the cluster ends with its job
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("realflink: jobs that do not end: %+v", jobs)
		}
		for _, job := range jobs {
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
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.REST+path, nil)
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
