package job_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// topicJob is a job on a topic of an own broker, with its shards in the workers' process or in one of their own.
type topicJob struct {
	t      *testing.T
	broker *broker.Broker
	dir    string
	set    []string
	text   string
	made   int // records
}

func newTopicJob(t *testing.T, away bool, partitions int, keys ...string) *topicJob {
	t.Helper()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": partitions}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	j := &topicJob{t: t, broker: b, dir: filepath.Join(t.TempDir(), "run")}
	j.set = []string{"dir=" + j.dir}
	j.text = fmt.Sprintf(`
version: 1
name: clicks
source: {kafka: {brokers: [%s], topic: clicks, max_wait: 20ms, retry_for: 1s, discover_every: 50ms, %s}}
parse: {format: libfm, fields: [a, b, c]}
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 20}
`, strings.Join(b.Addrs(), ","), strings.Join(keys, ", "))
	if away {
		j.set = append(j.set, fmt.Sprintf("ps.addresses=[%q]", testbed.FreeAddr(t)), "ps.retry=10s")
	}
	return j
}

func (j *topicJob) config(set ...string) *job.Config {
	j.t.Helper()
	cfg, err := job.Decode([]byte(j.text), "clicks.yaml", job.LoadOptions{Set: append(j.set, set...)})
	if err != nil {
		j.t.Fatal(err)
	}
	return cfg
}

func (j *topicJob) produce(partition, n int) {
	j.t.Helper()
	out := make([]broker.Record, n)
	for i := range out {
		out[i] = broker.Record{Value: fmt.Appendf(nil, "%d %d:1 %d:1 %d:1", 1-2*(j.made%2), j.made%11, 20+j.made%5, 40+j.made%13), Time: time.UnixMilli(int64(j.made) + 1)}
		j.made++
	}
	if err := broker.Produce(j.t.Context(), j.broker.Addrs(), "clicks", partition, broker.Batch{Size: 10}, out...); err != nil {
		j.t.Fatal(err)
	}
}

// serve starts shards; end kills them.
func (j *topicJob) serve() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := job.Serve(ctx, j.config(), job.ServeOptions{})
		if err != nil && ctx.Err() == nil {
			j.t.Errorf("shards: %v", err)
		}
	}()
	return func() { cancel(); <-done }
}

// running is a run of a worker.
type running struct {
	stop  context.CancelFunc
	drain chan struct{}
	done  chan error
	got   *job.TrainResult
	seen  chan struct{} // closed once it knows where its splits begin
	// examples is how many it was seen training.
	examples atomic.Int64
}

func (j *topicJob) start(worker string, set ...string) *running {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	r := &running{stop: cancel, drain: make(chan struct{}), done: make(chan error, 1), seen: make(chan struct{})}
	cfg := j.config(set...)
	closed := false
	go func() {
		var err error
		r.got, err = job.Run(ctx, cfg, job.RunOptions{Worker: worker, Drain: r.drain, Observe: func(o trainstep.Observation) { r.examples.Add(int64(o.Scores.Rows)) }, Status: func(p job.Status) {
			if !closed && p.Phase == "train" {
				closed = true
				close(r.seen)
			}
		}})
		r.done <- err
	}()
	return r
}

// reads waits until a run works on splits.
func (r *running) reads(t *testing.T) {
	t.Helper()
	select {
	case <-r.seen:
	case err := <-r.done:
		t.Fatalf("the run ended: %v", err)
	case <-time.After(3 * time.Minute):
		t.Fatal("nothing is read")
	}
}

// drained ends a run in order.
func (r *running) drained(t *testing.T) *job.TrainResult {
	t.Helper()
	close(r.drain)
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	r.stop()
	return r.got
}

// killed ends a run at once and returns its error.
func (r *running) killed() error {
	r.stop()
	return <-r.done
}

// positions waits until the shards' next snapshot can have what want says, and compares.
func positions(t *testing.T, path string, want map[string]int64) {
	t.Helper()
	info, err := job.InspectSnapshot(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for split, at := range want {
		if got := info.Positions["kafka"][split].Position; int64(got) != at {
			t.Errorf("%s is at %d, want %d; all: %+v", split, got, at, info.Positions)
		}
	}
}

// TestStartLatestIsStored: what was written since a job first began is read, also by a worker killed before anything is applied.
func TestStartLatestIsStored(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, away, 2, "start: latest")
			j.produce(0, 10)
			var end func()
			if away {
				end = j.serve()
			}
			a := j.start("a")
			a.reads(t)
			var b *running
			if away { // a rebalance before the first commit
				b = j.start("b")
				b.reads(t)
			}
			j.produce(0, 15) // less than a batch
			_ = a.killed()
			if away {
				_ = b.killed()
				end() // the shards go back to their last snapshot
				end = j.serve()
				defer end()
			}
			j.produce(0, 25)
			j.produce(1, 20)
			a = j.start("a")
			a.reads(t)
			j.waitFor(a, 60)
			r := a.drained(t)
			if r.Examples != 60 {
				t.Errorf("%d examples, want 60", r.Examples)
			}
			positions(t, r.Snapshot, map[string]int64{"clicks-00000": 50, "clicks-00001": 20})
		})
	}
}

// waitFor waits until a run has trained so many examples, which end with a batch.
func (j *topicJob) waitFor(r *running, examples int64) {
	j.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r.examples.Load() >= examples {
			return
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("%d examples after 3 minutes, want %d", r.examples.Load(), examples)
		}
	}
}

// TestPartitionsAreAdded: partitions that a topic gets while it is read are read from their first record on.
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, workers > 1, 2, "start: latest")
			if workers > 1 {
				defer j.serve()()
			}
			runs := []*running{j.start("a")}
			runs[0].reads(t)
			if workers > 1 {
				runs = append(runs, j.start("b"))
				runs[1].reads(t)
			}
			if err := j.broker.AddPartitions(t.Context(), "clicks", 4); err != nil {
				t.Fatal(err)
			}
			for p := range 4 {
				j.produce(p, 40)
			}
			total := func() (n int64) {
				for _, r := range runs {
					n += r.examples.Load()
				}
				return n
			}
			for deadline := time.Now().Add(3 * time.Minute); total() < 160 && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			path := ""
			for _, r := range runs {
				if got := r.drained(t); got.Snapshot != "" {
					path = got.Snapshot
				}
			}
			positions(t, path, map[string]int64{"clicks-00000": 40, "clicks-00001": 40, "clicks-00002": 40, "clicks-00003": 40})
		})
	}
}

// TestBeginAtATime: a job begins with the first record of a time or a later one, and remembers the place.
func TestBeginAtATime(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	j.produce(0, 30)
	from := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	later := make([]broker.Record, 20)
	for i := range later {
		later[i] = broker.Record{Value: []byte("1 1:1 21:1 41:1"), Time: from.Add(time.Duration(i) * time.Second)}
	}
	if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 0, broker.Batch{}, later...); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{from.Format(time.RFC3339), fmt.Sprint(from.UnixMilli())} {
		a := j.start("a", "source.kafka.start="+text, "dir="+t.TempDir())
		j.waitFor(a, 20)
		r := a.drained(t)
		positions(t, r.Snapshot, map[string]int64{"clicks-00000": 50})
		if r.Examples != 20 {
			t.Errorf("%s: %d examples, want 20", text, r.Examples)
		}
	}
	for text, want := range map[string]string{
		fmt.Sprint(from.Unix()): "in seconds it is " + from.Format(time.RFC3339),
		"120":                   "an offset is written with its partition, such as {0: 120}",
		"2026-13-01":            "no time such as",
		"oldest":                `is "oldest", not one of earliest, latest (word, time or {partition: offset})`,
	} {
		_, err := job.Decode([]byte(j.text), "job.yaml", job.LoadOptions{Set: []string{"source.kafka.start=" + text}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestRecreatedTopic: a topic that was deleted and made again between runs is not taken for the one before, and what the
// message says to do helps.
func TestRecreatedTopic(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1, "group_id: lag")
	j.produce(0, 40)
	a := j.start("a")
	j.waitFor(a, 40)
	recreate := func() {
		if err := errors.Join(j.broker.DeleteTopic("clicks"), j.broker.CreateTopic("clicks", 1, nil)); err != nil {
			t.Fatal(err)
		}
		j.produce(0, 60)
	}
	committed := func(want int64) {
		t.Helper()
		at := int64(-1)
		if g := j.broker.Cluster.GroupInfo("lag"); g != nil && len(g.Commits["clicks"]) > 0 {
			at = g.Commits["clicks"][0].Offset
		}
		if at != want {
			t.Errorf("the group has offset %d, want %d", at, want)
		}
	}
	a.drained(t)
	committed(40)
	recreate()
	for again := range 3 { // at every start
		if again == 2 { // and while it is read
			a = j.start("a", "source.kafka.name=clicks1")
			j.waitFor(a, 60)
			recreate()
		} else {
			a = j.start("a")
		}
		err := <-a.done
		committed(-1)
		if again == 2 {
			if gap, ok := errors.AsType[*pipeline.GapError](err); !ok || gap.Want != 60 || strings.Contains(err.Error(), "outside") {
				t.Errorf("%v", err)
			}
			break
		}
		var gap *pipeline.GapError
		if !errors.As(err, &gap) || gap.Want != 40 || !strings.Contains(err.Error(), "re-created") || !strings.Contains(err.Error(), "source.kafka.name") {
			t.Fatalf("%v", err)
		}
	}
	a = j.start("a", "source.kafka.name=clicks2")
	j.waitFor(a, 60)
	r := a.drained(t)
	positions(t, r.Snapshot, map[string]int64{"clicks-00000": 40, "clicks1-00000": 60, "clicks2-00000": 60})
	committed(60)
}

// TestDeletedTopic: a topic that is deleted while it is read ends the run as unavailable, with a snapshot of what was
// trained.
func TestDeletedTopic(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	j.produce(0, 40)
	a := j.start("a")
	j.waitFor(a, 40)
	if err := j.broker.DeleteTopic("clicks"); err != nil {
		t.Fatal(err)
	}
	if err := <-a.done; !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "source.kafka.retry_for") {
		t.Errorf("%v", err)
	}
	positions(t, j.dir, map[string]int64{"clicks-00000": 40})
}

// TestLostRecordsStandInTheResult: what retention took before it was read, and on_gap passes over, is reported.
func TestLostRecordsStandInTheResult(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1, "on_gap: skip")
	j.produce(0, 20)
	a := j.start("a")
	j.waitFor(a, 20)
	a.drained(t)
	j.produce(0, 80)
	if err := j.broker.DeleteRecords("clicks", 0, 60); err != nil {
		t.Fatal(err)
	}
	a = j.start("a")
	j.waitFor(a, 40)
	r := a.drained(t)
	if r.LostRecords != 40 || len(r.Lost) != 1 || r.Lost[0] != (job.LostRange{Split: "clicks-00000", From: 20, To: 60}) {
		t.Errorf("%d lost: %+v", r.LostRecords, r.Lost)
	}
}

// TestOnlyBadRecordsEndAStream: a topic without an end of which no record can be used ends the run too, though nothing else
// would ever end it, with the reason and without a snapshot; where all may be bad it continues, and its progress says how many.
func TestOnlyBadRecordsEndAStream(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 2)
	bad := make([]broker.Record, 1500)
	for i := range bad {
		bad[i] = broker.Record{Value: []byte("no record of this job")}
	}
	if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 1, broker.Batch{}, bad...); err != nil {
		t.Fatal(err)
	}
	err := <-j.start("a", "train.on_bad_row=skip").done
	if !errors.Is(err, job.ErrBadRows) || !strings.Contains(err.Error(), "1500 of 1500 records are bad, more than train.max_bad_share, 0.5") {
		t.Errorf("it ended with %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(j.dir, "snapshots", "snap-*")); len(left) > 0 {
		t.Errorf("there are snapshots: %q", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	drain, told := make(chan struct{}), false
	_, err = job.Run(ctx, j.config("train.on_bad_row=skip", "train.max_bad_share=1"), job.RunOptions{Drain: drain, Status: func(p job.Status) {
		if p.Bad == 1500 && !told {
			told = true
			close(drain)
		}
	}})
	if !told || !errors.Is(err, job.ErrBadRows) || !strings.Contains(err.Error(), "all 1500 records are bad") {
		t.Errorf("told %v: %v", told, err)
	}
}

// TestBrokerComesLate: a broker that is not there yet when a job starts is waited for, and as soon as it is there the job
// trains. Until something has begun there is no progress to report.
func TestBrokerComesLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j := newTopicJob(t, false, 1)
	j.broker = first
	j.produce(0, 40)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	type outcome struct {
		r   *job.TrainResult
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		var nothing bool
		r, err := job.Run(t.Context(), j.config("source.kafka.brokers=["+first.Addrs()[0]+"]", "source.kafka.retry_for=1m", "source.kafka.end=latest"), job.RunOptions{
			Notice: func(text string) {
				select {
				case said <- text:
				default:
				}
			},
			Status: func(p job.Status) { nothing = nothing || p.Phase == "" },
		})
		if nothing {
			t.Error("progress is told of what has not begun")
		}
		done <- outcome{r, err}
	}()
	if text := <-said; !strings.Contains(text, "no answer from kafka clicks yet") {
		t.Errorf("it says %q", text)
	}
	if err := first.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	if got := <-done; got.err != nil || got.r.Examples != 40 {
		t.Errorf("%+v, %v", got.r, got.err)
	}
}

// TestBrokerStaysAway: the wait has an end, which the error names with the address.
func TestBrokerStaysAway(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	j.produce(0, 40)
	late := testbed.FreeAddr(t)
	began := time.Now()
	a := j.start("a", "source.kafka.brokers=["+late+"]", "source.kafka.retry_for=7s")
	if err := <-a.done; !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), late) || time.Since(began) < 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
