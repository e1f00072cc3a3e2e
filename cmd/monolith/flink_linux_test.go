package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/realflink"
	"github.com/monolith-go/monolith/internal/testbed/realkafka"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// TestFlink trains jobs on a real Flink: the result is that of the local runner, whatever is killed on the way.
func TestFlink(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM; part of the full run")
	}
	server := realflink.Start(t)
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	onFlink := []string{"--runner=flink", "--set", "beam.endpoint=" + server.Endpoint, "--set", "beam.flink_rest=" + server.REST}

	t.Run("files", func(t *testing.T) {
		folder := t.TempDir()
		for i := range 4 {
			rows := clickRows(3000 + 500*i)
			for name, data := range map[string][]byte{"p%d.parquet": parquetOf(t, rows), "t%d.tfrecord": tfrecords(t, rows)} {
				if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf(name, i)), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, source := range []string{"{parquet: {files: [" + folder + "/*.parquet]}}", "{tfrecord: {files: [" + folder + "/*.tfrecord]}}"} {
			text := strings.Replace(filesJob, "FILES", source, 1)
			dir, job := makeJob(t, text)
			if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
				t.Fatalf("local: %v\n%s", err, out)
			}
			want := digest(t, path, dir)
			dir, job = makeJob(t, text)
			out, err := exec.CommandContext(t.Context(), path, append([]string{"train", job, "--json"}, onFlink...)...).Output()
			if err != nil {
				t.Fatalf("flink: %v\n%s", err, stderr(err))
			}
			if got := digest(t, path, dir); got != want {
				t.Errorf("%s: digest %s, of the local runner %s", source, got, want)
			}
			var r struct{ Result struct{ Examples int64 } }
			if err := json.Unmarshal(out, &r); err != nil || r.Result.Examples != 15000 {
				t.Errorf("%d examples, %v in %s", r.Result.Examples, err, out)
			}
		}
	})

	t.Run("held out and bad", func(t *testing.T) {
		folder := t.TempDir()
		for i := range 3 {
			rows := clickRows(2000 + 500*i)
			for n := 7; n < len(rows); n += 100 {
				rows[n].price = 1e40 // a bad row, unless it is held out: no float32
			}
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("p%d.parquet", i)), parquetOf(t, rows), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.Replace(filesJob, "FILES", "{parquet: {files: ["+folder+"/*.parquet]}}", 1)
		text = strings.Replace(text, "ps: {shards: 2}", "ps: {addresses: ADDRESSES}\neval: {holdout: {by: user, share: 0.3}}\ntrain: {batch: 64, on_bad_row: skip}", 1)
		text = strings.Replace(text, "train: {batch: 64}\n", "", 1)
		p := startShards(t, path, text, 2)
		args := slices.Concat([]string{"train", p.job, "--json", "--set", "beam.environment=process", "--set", "beam.environment_config=" + path}, onFlink)
		out, err := exec.CommandContext(t.Context(), path, args...).Output()
		if err != nil {
			t.Fatalf("flink: %v\n%s", err, stderr(err))
		}
		var r struct {
			Result struct {
				Examples int64
				HeldOut  int64            `json:"held_out"`
				BadRows  map[string]int64 `json:"bad_rows"`
			}
		}
		bad := func() int64 { return r.Result.BadRows["not finite"] }
		if err := json.Unmarshal(out, &r); err != nil || r.Result.HeldOut < 500 {
			t.Errorf("%+v of 7,500 examples, %v in %s", r.Result, err, out)
		}
		trained, dropped := r.Result, bad()
		for _, where := range [][]string{nil, args[3:]} {
			out, err = exec.CommandContext(t.Context(), path, slices.Concat([]string{"eval", p.job, "--json"}, where)...).Output()
			r.Result.BadRows = nil
			if err == nil {
				err = json.Unmarshal(out, &r)
			}
			if err != nil || r.Result.Examples+bad() != trained.HeldOut || bad() < 5 {
				t.Errorf("%d are held out, and evaluated with %q %s, %v", trained.HeldOut, where, out, err)
			}
		}
		if all := trained.Examples + trained.HeldOut + dropped - bad(); all != 7500 || dropped < 50 { // training evaluates too
			t.Errorf("%+v are %d of 7,500 examples", trained, all)
		}
	})

	t.Run("evaluation", func(t *testing.T) {
		job := makeEvalJob(t, path)
		want := evaluated(t, path, job)
		inProcesses := []string{"--set", "beam.environment=process", "--set", "beam.environment_config=" + path}
		for _, where := range [][]string{nil, inProcesses} {
			if diff := cmp.Diff(want, evaluated(t, path, job, slices.Concat(onFlink, where)...)); diff != "" {
				t.Errorf("%q (-local +flink):\n%s", where, diff)
			}
		}
		if diff := cmp.Diff(scored(t, path, job), scored(t, path, job, slices.Concat(onFlink, inProcesses)...)); diff != "" {
			t.Errorf("predictions in processes (-local +flink):\n%s", diff)
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(job), "run", "evals", "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left are %q, %v", left, err)
		}
	})

	t.Run("rows", func(t *testing.T) {
		job := makeEvalJob(t, path)
		text, err := os.ReadFile(job)
		if err != nil {
			t.Fatal(err)
		}
		want := writtenRows(t, path, job, "local")
		models := map[string]map[string][sha256.Size]byte{}
		for _, format := range []string{"savedmodel", "onnx"} {
			models[format] = writtenModel(t, path, job, format, "local")
		}
		for _, where := range []string{"", ", environment: process, environment_config: " + path} {
			beam := fmt.Sprintf("beam: {endpoint: %q, flink_rest: %q%s}\n", server.Endpoint, server.REST, where)
			if err := os.WriteFile(job, append(slices.Clip(text), beam...), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, writtenRows(t, path, job, "flink")); diff != "" {
				t.Errorf("%q (-local +flink):\n%s", where, diff)
			}
			for format, want := range models {
				if got := writtenModel(t, path, job, format, "flink"); !maps.Equal(want, got) {
					t.Errorf("%q: a model as %s has files with digests %q on Flink, and %q here", where, format, got, want)
				}
			}
		}
	})

	t.Run("stream", func(t *testing.T) {
		t.Run("deterministic in processes", func(t *testing.T) { flinkStream(t, server, path, onFlink, true) })
		t.Run("asynchronous in a pool", func(t *testing.T) { flinkStream(t, server, path, onFlink, false) })
	})

	t.Run("job server dies", func(t *testing.T) {
		f := newFlinkJob(t, path, onFlink, 2, "wal", true)
		submitter := f.submit("submitter")
		f.more()
		f.reaches("first")
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-submitter.done:
		case <-time.After(testbed.Patience(t)):
			f.p.dump()
			t.Fatal("the submitter continues without a job server")
		}
		if exit, ok := errors.AsType[*exec.ExitError](submitter.err); !ok || exit.ExitCode() != 3 || !strings.Contains(submitter.all(), server.Endpoint) {
			t.Errorf("the submitter ends with %v, want exit code 3 and the address of the job server: %s", submitter.err, submitter.log())
		}
		f.more()
		next := realflink.Start(t)
		f.finish("--set", "beam.endpoint="+next.Endpoint, "--set", "beam.flink_rest="+next.REST)
	})
}

// writtenRows are the rows of a job's newest snapshot as `monolith export` writes them, by id.
func writtenRows(t *testing.T, path, job, runner string) map[int64][]float32 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rows")
	out, err := exec.CommandContext(t.Context(), path, "export", job, "--format", "parquet", "--dir", dir, "--rows-per-file", "100", "--runner", runner, "--json").Output()
	if err != nil {
		t.Fatalf("rows on %s: %v\n%s", runner, err, stderr(err))
	}
	var r struct{ Result struct{ Rows int } }
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*", "*", "[^.]*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int64][]float32{}
	for _, name := range names {
		read, err := parquet.ReadFile[struct {
			FID  int64     `parquet:"fid"`
			Bias []float32 `parquet:"weights_bias,list"`
		}](name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, row := range read {
			if rows[row.FID] != nil {
				t.Errorf("rows on %s: %d is there twice", runner, row.FID)
			}
			rows[row.FID] = row.Bias
		}
	}
	if len(rows) == 0 || len(rows) != r.Result.Rows {
		t.Errorf("rows on %s: %d in %d files, the command says %d", runner, len(rows), len(names), r.Result.Rows)
	}
	return rows
}

// writtenModel are the digests of the files of a job's newest snapshot as `monolith export` writes it whole.
func writtenModel(t *testing.T, path, job, format, runner string) map[string][sha256.Size]byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "models")
	if out, err := exec.CommandContext(t.Context(), path, "export", job, "--format", format, "--dir", dir, "--runner", runner).CombinedOutput(); err != nil {
		t.Fatalf("%s on %s: %v\n%s", format, runner, err, out)
	}
	files := map[string][sha256.Size]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if elems := strings.Split(name, "/"); err != nil || d.IsDir() || len(elems) == 1 { // beside the export
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = sha256.Sum256(b)
		return err
	})
	if err != nil || len(files) < 2 {
		t.Fatalf("%s on %s: files %q, %v", format, runner, files, err)
	}
	return files
}

// flinkStream trains on a topic of Apache Kafka that is filled meanwhile, and writes its rows to Parquet, in worker processes that Flink starts or in a
// pool. It kills these, and the submitting process, stops the job at Flink and drains it.
func flinkStream(t *testing.T, server *realflink.JobServer, path string, onFlink []string, deterministic bool) {
	f := newFlinkJob(t, path, onFlink, 6, "wal", deterministic)
	if !deterministic {
		f.usePool()
	}
	submitter := f.submit("submitter")
	f.more()
	f.reaches("first")
	for i := range 2 {
		f.killWorkers()
		f.more()
		took := f.reaches(fmt.Sprintf("after kill %d of the worker", i))
		t.Logf("all that came after the worker was killed is applied %.1f s later", took.Seconds())
	}
	// The job is left alone, cancelled and started again.
	submitter.end(syscall.SIGKILL)
	server.CancelAll(t)
	submitter = f.submit("submitter")
	f.more()
	f.reaches("after the job was cancelled and started again")
	// It is cancelled at Flink, which ends the submitter.
	server.CancelAll(t)
	f.ends(submitter, 1)
	if !strings.Contains(submitter.all(), "was stopped at its runner") {
		t.Errorf("the submitter does not say that the job was stopped: %s", submitter.log())
	}
	submitter = f.submit("submitter")
	f.more()
	f.reaches("after the job was stopped")
	f.drain(submitter)
	f.finish()
}

// deterministicRest is what is left of the stream in deterministic order, which waits for the splits in turn, also for one that has no more.
const deterministicRest = 4000

// flinkJob is a job on Flink with shards, submitter and Flink's workers in processes of their own.
type flinkJob struct {
	t       *testing.T
	p       *processes
	path    string
	text    string // of the job
	worker  string // the program that Flink starts
	args    []string
	addr    string
	records [][]byte
	part    int // examples that more brings
	done    int
	exact   bool     // deterministic
	pool    *process // that has the workers, or nil
	rows    *writtenOutputs
}

// newFlinkJob starts the shards of a job whose topic is filled in so many parts.
func newFlinkJob(t *testing.T, path string, onFlink []string, parts int, durability string, deterministic bool) *flinkJob {
	t.Helper()
	f := &flinkJob{
		t: t, path: path, addr: realkafka.Start(t).Addr, records: killRecords(t)[:clusterExamples], part: (clusterExamples + parts - 1) / parts,
		exact: deterministic, worker: filepath.Join(t.TempDir(), "worker"), // of a name of its own, to be found
		rows: &writtenOutputs{dir: filepath.Join(t.TempDir(), "rows"), seen: map[string][sha256.Size]byte{}},
	}
	topic := kafkasink.Topic{Partitions: killPartitions, Replication: 1, Config: map[string]string{"retention.ms": "-1"}} // the clicks are of 1970
	if err := kafkasink.CreateTopic(t.Context(), kafkasink.Options{Brokers: []string{f.addr}, Topic: "clicks"}, topic); err != nil {
		t.Fatal(err)
	}
	f.text = fmt.Sprintf(clusterJob, f.addr, 0, durability, "rollback")
	f.text = strings.Replace(f.text, "    end: {0: 0, 1: 0, 2: 0, 3: 0}\n", "", 1)
	most := clusterExamples
	if deterministic {
		most -= deterministicRest
	}
	f.text = strings.Replace(f.text, "train: {batch: 97}", fmt.Sprintf("train: {batch: 97, max_examples: %d}", most), 1)
	if !deterministic {
		f.text = strings.Replace(f.text, "deterministic: true", "deterministic: false", 1)
		f.text = strings.Replace(f.text, "batch: 97,", "batch: 97, max_batch_delay: 100ms,", 1)
	}
	f.p = startShards(t, path, f.text+fmt.Sprintf("outputs: [{name: examples, of: rows, to: {parquet: {dir: %s, rows_per_file: 5000}}}]\n", f.rows.dir), 2)
	if err := os.Link(path, f.worker); err != nil {
		t.Fatal(err)
	}
	f.args = append([]string{
		"train", f.p.job, "--worker", "submitter", "--set", "beam.environment=process", "--set", "beam.environment_config=" + f.worker, "--set", "beam.checkpoint_every=1s",
	}, onFlink...)
	return f
}

// usePool has the workers in a pool's process.
func (f *flinkJob) usePool() {
	f.t.Helper()
	addr := testbed.FreeAddr(f.t)
	f.pool = f.p.launch("pool", "worker-pool", "--listen", addr)
	f.p.await(f.pool, "worker pool ready")
	f.args = append(f.args, "--set", "beam.environment=external", "--set", "beam.environment_config="+addr)
}

// submit starts a process that submits the job.
func (f *flinkJob) submit(name string, more ...string) *process {
	f.t.Helper()
	return f.p.launch(name, slices.Concat(f.args, more)...)
}

// more brings another part of the stream.
func (f *flinkJob) more() {
	f.t.Helper()
	next := min(f.done+f.part, clusterExamples)
	fill(f.t, f.addr, f.records, f.done, next)
	f.done = next
}

// reaches waits until almost all that came is applied, and returns how long that took: batches that are not full wait for their
// delay, those of deterministic order for the others.
func (f *flinkJob) reaches(what string) time.Duration {
	f.t.Helper()
	began, want, patience := time.Now(), int64(f.done-4*97), testbed.Patience(f.t)
	for appliedIn(f.t, f.p.dir) < want {
		if time.Since(began) > patience { // a session cluster is given 160 MiB of jars with each job
			f.p.dump()
			f.t.Fatalf("%s: %d examples after %v, want %d", what, appliedIn(f.t, f.p.dir), time.Since(began), want)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

func (f *flinkJob) killWorkers() {
	f.t.Helper()
	if f.pool != nil {
		f.pool.kill(f.t)
		return
	}
	pids := pidsOf(f.t, f.worker)
	if len(pids) == 0 {
		f.t.Fatal("there is no worker to be killed")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			f.t.Errorf("kill %d: %v", pid, err)
		}
	}
}

// drain ends the job, and brings another part of the stream.
func (f *flinkJob) drain(submitter *process) {
	f.t.Helper()
	submitter.end(syscall.SIGINT)
	f.ends(submitter, 130)
	f.more()
}

// ends waits for a submitter that was ended before all was trained, which its exit code says.
func (f *flinkJob) ends(submitter *process, code int) {
	f.t.Helper()
	select {
	case <-submitter.done:
	case <-time.After(testbed.Patience(f.t)):
		f.p.dump()
		f.t.Fatal("the submitter did not end")
	}
	if got, ok := errors.AsType[*exec.ExitError](submitter.err); !ok || got.ExitCode() != code {
		f.p.dump()
		f.t.Fatalf("the submitter: %v, want exit code %d", submitter.err, code)
	}
}

// finish submits the job a last time, until it ends by itself, and checks what was trained.
func (f *flinkJob) finish(more ...string) {
	f.t.Helper()
	if f.done != clusterExamples {
		f.t.Fatalf("only %d of %d examples were brought", f.done, clusterExamples)
	}
	f.p.wait(f.submit("last", more...))
	for until := time.Now().Add(testbed.Patience(f.t)); len(pidsOf(f.t, f.worker)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			f.t.Errorf("workers are left: %v", pidsOf(f.t, f.worker))
			break
		}
	}
	f.rows.look(f.t)
	trained, most := appliedIn(f.t, f.p.dir), int64(clusterExamples)
	if f.exact {
		most -= deterministicRest
	}
	if trained < most || trained >= most+97 { // executors that resume count what they resume when they begin
		f.t.Errorf("%d examples are trained, want %d", trained, most)
	}
	checkRows(f.t, f.rows.rows(f.t), int(trained))
	if !f.exact {
		checkOccurrences(f.t, f.p.dir, clusterExamples, occurrences(f.t, clusterExamples))
		return
	}
	dir, job := makeJob(f.t, strings.Replace(f.text, "addresses: ADDRESSES, ", "", 1))
	if out, err := exec.CommandContext(f.t.Context(), f.path, "train", job).CombinedOutput(); err != nil {
		f.t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	if got, want := digest(f.t, f.path, f.p.dir), digest(f.t, f.path, dir); got != want {
		f.t.Errorf("digest %s, that of one process on the local runner %s", got, want)
		f.p.dump()
	}
}

// TestFlinkCluster trains on a session cluster whose task managers are killed, whose job is stopped with a savepoint and cancelled, and
// begun again from these, while shards die too.
func TestFlinkCluster(t *testing.T) {
	if !testbed.Required("flink-cluster") {
		t.Skip("takes minutes and 4 GiB of memory; make flink-cluster runs it")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	c := realflink.StartCluster(t, 2)
	onFlink := []string{"--runner=flink", "--set", "beam.endpoint=" + c.Endpoint, "--set", "beam.flink_rest=" + c.REST}
	running := func() string {
		t.Helper()
		for until := time.Now().Add(testbed.Patience(t)); ; time.Sleep(100 * time.Millisecond) {
			jobs, err := c.Jobs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range jobs {
				if job.State == "RUNNING" {
					return job.ID
				}
			}
			if time.Now().After(until) {
				t.Fatalf("no job runs: %+v", jobs)
			}
		}
	}
	for _, scene := range []struct {
		name, durability string
		deterministic    bool
	}{{"deterministic with rollback", "none", true}, {"asynchronous with wal", "wal", false}} {
		t.Run(scene.name, func(t *testing.T) {
			f := newFlinkJob(t, path, onFlink, 7, scene.durability, scene.deterministic)
			submitter := f.submit("submitter")
			f.more()
			f.reaches("first")

			// A task manager with work, of which there is one at least, whichever it is; another takes its place. One that has not had the job
			// before has to fetch and to load the job's jars first, which is most of the time then.
			for range len(c.Managers) {
				had := c.Fetched(t)
				c.KillOldest(t)
				f.more()
				took := f.reaches("after a task manager was killed")
				t.Logf("all that came after a task manager was killed is applied %.1f s later (%d task managers of %d had the job's jars before)", took.Seconds(), had, len(c.Managers)+1)
				c.AddTaskManager(t)
			}

			f.p.procs[shardName(1)].kill(t)
			f.more()
			took := f.reaches("after a shard was killed")
			t.Logf("all that came after a shard was killed is applied %.1f s later", took.Seconds())

			savepoint, err := c.Savepoint(t.Context(), running())
			if err != nil {
				t.Fatal(err)
			}
			f.ends(submitter, 1)
			submitter = f.submit("submitter", "--set", "beam.savepoint="+savepoint)
			f.more()
			f.reaches("after the job was stopped with a savepoint and restored")

			cancelled := running()
			for until := time.Now().Add(testbed.Patience(t)); ; time.Sleep(100 * time.Millisecond) { // until it has a checkpoint of its own
				if _, err := c.Retained(t.Context(), cancelled); err == nil {
					break
				} else if time.Now().After(until) {
					t.Fatal(err)
				}
			}
			c.CancelAll(t)
			f.ends(submitter, 1)
			checkpoint, err := c.Retained(t.Context(), cancelled)
			if err != nil {
				t.Fatal(err)
			}
			submitter = f.submit("submitter", "--set", "beam.savepoint="+checkpoint)
			f.more()
			f.reaches("after the job was cancelled and restored from a checkpoint")
			f.drain(submitter)
			f.finish()
		})
	}
}

// appliedIn counts the examples in the newest snapshot of a job's dir; there may be none yet.
func appliedIn(t *testing.T, dir string) (rows int64) {
	t.Helper()
	entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(entries) == 0 {
		return 0
	}
	snap, err := snapshot.Open(t.Context(), entries[0].Path)
	if err != nil {
		return 0 // it was the oldest a moment ago
	}
	defer func() { _ = snap.Close() }()
	for _, p := range snap.Info().Positions["kafka"] {
		rows += p.Rows
	}
	return rows
}

// pidsOf lists the processes that run a program.
func pidsOf(t *testing.T, program string) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		args, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(args, []byte(program+"\x00")) {
			continue // another one, or it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
