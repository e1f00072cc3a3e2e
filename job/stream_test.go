package job_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// clickTopic is a topic of one partition and a job that trains on it.
type clickTopic struct {
	broker *broker.Broker
	dir    string
	n      int
}

func newClickTopic(t *testing.T) *clickTopic {
	t.Helper()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &clickTopic{broker: b, dir: t.TempDir()}
}

// publish adds records, the first bad of which are no examples.
func (c *clickTopic) publish(t *testing.T, records, bad int) {
	t.Helper()
	var out []broker.Record
	for i := range records {
		value := fmt.Appendf(nil, "%d %d:1 %d:1 %d:1", 1-2*(c.n%2), c.n%11, 20+c.n%5, 40+c.n%13)
		if i < bad {
			value = []byte("nothing of this is an example")
		}
		out = append(out, broker.Record{Value: value, Time: time.UnixMilli(int64(c.n) + 1)})
		c.n++
	}
	if err := broker.Produce(t.Context(), c.broker.Addrs(), "clicks", 0, broker.Batch{Size: 500}, out...); err != nil {
		t.Fatal(err)
	}
}

func (c *clickTopic) config(t *testing.T, set ...string) *job.Config {
	t.Helper()
	text := fmt.Sprintf(`
version: 1
name: clicks
source: {kafka: {brokers: [%s], topic: clicks, max_wait: 20ms}}
parse: {format: libfm, fields: [a, b, c]}
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 64, on_bad_row: skip}
`, strings.Join(c.broker.Addrs(), ","))
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(c.dir, "run"))})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestTailIsTrained: the last records of a stream that stops are trained after train.max_batch_delay, and lag counts them
// until then.
func TestTailIsTrained(t *testing.T) {
	t.Parallel()
	c := newClickTopic(t)
	c.publish(t, 150, 0)
	c.publish(t, 10, 10) // the last positions hold no example at all
	drain, trained, lags := make(chan struct{}), make(chan int), make(chan int64, 1000)
	go func() {
		for n := 0; n < 150; n += <-trained {
		}
		for lag := range lags {
			if lag == 0 {
				break
			}
		}
		close(drain)
	}()
	most := int64(0)
	r, err := job.Run(t.Context(), c.config(t, "train.max_batch_delay=1500ms"), job.RunOptions{
		Drain:   drain,
		Observe: func(o trainstep.Observation) { trained <- o.Scores.Rows },
		Status:  func(p job.Status) { most = max(most, p.Lag); lags <- p.Lag },
	})
	if err != nil {
		t.Fatal(err)
	}
	bad := int64(0)
	for _, n := range r.BadRows {
		bad += n
	}
	if r.Examples != 150 || bad != 10 {
		t.Errorf("%d examples of 150, bad rows %v of 10", r.Examples, r.BadRows)
	}
	if most < 22 { // 150 are two batches of 64 and 22 more
		t.Errorf("lag was never more than %d", most)
	}
}

// TestDrainTrainsWhatWasRead drains a run whose last records wait for a full batch: they are trained and stored, except
// in deterministic mode, where the run says how many the next one reads again.
func TestDrainTrainsWhatWasRead(t *testing.T) {
	t.Parallel()
	for _, deterministic := range []bool{false, true} {
		t.Run(fmt.Sprintf("deterministic=%v", deterministic), func(t *testing.T) {
			t.Parallel()
			c := newClickTopic(t)
			c.publish(t, 100, 0)
			drain, once := make(chan struct{}), false
			var notices []string
			opts := job.RunOptions{
				Drain:  drain,
				Notice: func(s string) { notices = append(notices, s) },
				Status: func(p job.Status) {
					if !once && p.Examples == 64 && p.Lag == 36 {
						once = true
						close(drain)
					}
				},
			}
			cfg := c.config(t, "train.max_batch_delay=0s", fmt.Sprintf("deterministic=%v", deterministic))
			r, err := job.Run(t.Context(), cfg, opts)
			if err != nil {
				t.Fatal(err)
			}
			want, notice := int64(100), "draining: what was read is trained"
			if deterministic {
				want, notice = 64, "36 examples that were read"
			}
			if !r.Drained || r.Examples != want || !strings.Contains(strings.Join(notices, "\n"), notice) {
				t.Errorf("%d examples of %d, drained %v, notices %q", r.Examples, want, r.Drained, notices)
			}
			info, err := job.InspectSnapshot(t.Context(), r.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			for _, splits := range info.Positions {
				for split, p := range splits {
					if p.Rows != want {
						t.Errorf("the snapshot has %d rows of %s, want %d", p.Rows, split, want)
					}
				}
			}
		})
	}
}

// TestProgressCountsAllWorkers has two workers train on one source: each shows how far the job is, not its own share of
// it, and both results know the epochs and the newest snapshot.
func TestProgressCountsAllWorkers(t *testing.T) {
	t.Parallel()
	const examples = 30_000
	cfg := func() *job.Config {
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: two
source: {synthetic: {examples: %d, splits: 4, rate: 8000}} # for longer than a coordinator is silent
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: lr
train: {batch: 32}
ps: {addresses: [%q], lease: 30s}
`, examples, testbed.FreeAddr(t)), "two.yaml", job.LoadOptions{Set: []string{"dir=" + t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}()
	drain, served := make(chan struct{}), make(chan error, 1)
	go func() { _, err := job.Serve(t.Context(), cfg, job.ServeOptions{Drain: drain}); served <- err }()
	type outcome struct {
		result *job.TrainResult
		err    error
		last   job.Status
	}
	outcomes := make(chan outcome, 2)
	together := make(chan struct{}) // closed when somebody has seen both workers
	var once sync.Once
	for _, name := range []string{"a", "b"} {
		go func() {
			var o outcome
			o.result, o.err = job.Run(t.Context(), cfg, job.RunOptions{
				Worker: name,
				Status: func(p job.Status) {
					if o.last = p; p.Workers == 2 {
						once.Do(func() { close(together) })
					}
				},
				Observe: func(trainstep.Observation) {
					select {
					case <-together:
					case <-time.After(20 * time.Millisecond): // so that neither is done before the other has come
					}
				},
			})
			outcomes <- o
		}()
	}
	a, b := <-outcomes, <-outcomes
	close(drain)
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, o := range []outcome{a, b} {
		if o.err != nil {
			t.Fatal(o.err)
		}
		if o.result.Epochs != 1 || o.result.Snapshot == "" || o.result.Snapshot != a.result.Snapshot {
			t.Errorf("result has %d epochs and snapshot %s", o.result.Epochs, o.result.Snapshot)
		}
		if own := o.result.Examples; own == 0 || own == examples || o.last.Examples <= own || o.last.Total != examples {
			t.Errorf("a worker that trained %d of %d examples showed %d of %d", own, examples, o.last.Examples, o.last.Total)
		}
	}
	if n := a.result.Examples + b.result.Examples; n != examples {
		t.Errorf("%d examples trained", n)
	}
}
