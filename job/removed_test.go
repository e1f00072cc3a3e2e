package job_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
)

// resting is a topic whose records have times, and jobs that train on it with rows that expire.
type resting struct {
	*testing.T

	broker *broker.Broker
	began  time.Time
}

func newResting(t *testing.T) resting {
	t.Helper()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return resting{T: t, broker: b, began: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// produce appends n records a millisecond apart, with ids from a number on.
func (r resting) produce(n, from int, after time.Duration) {
	r.Helper()
	out := make([]broker.Record, n)
	for i := range out {
		at := r.began.Add(after + time.Duration(i)*time.Millisecond)
		out[i] = broker.Record{Value: fmt.Appendf(nil, "%d %d:1 %d:1", i%2, from+i, from+i), Time: at}
	}
	if err := broker.Produce(r.Context(), r.broker.Addrs(), "clicks", 0, broker.Batch{Size: 50}, out...); err != nil {
		r.Fatal(err)
	}
}

// train trains on what the topic has and returns the log, and the metric's counts by cause, too.
func (r resting) train(dir string, set ...string) (*job.TrainResult, string, map[string]float64) {
	r.Helper()
	text := fmt.Sprintf(`
version: 1
name: rests
dir: %s
deterministic: true
source: {kafka: {brokers: [%s], topic: clicks, end: latest}}
parse: {format: libfm, fields: [a, b]}
model: lr
train: {batch: 50}
retention: {expire: 6h}
`, dir, strings.Join(r.broker.Addrs(), ","))
	cfg, err := job.Decode([]byte(text), "rests.yaml", job.LoadOptions{Set: set})
	if err != nil {
		r.Fatal(err)
	}
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	o := job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics}
	trained, err := job.Run(r.Context(), cfg, o)
	if err != nil {
		r.Fatal(err)
	}
	families, err := metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "monolith_ps_rows_removed_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			counted[m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
		}
	}
	return trained, log.String(), counted
}

// rows is how many rows a run's snapshot has.
func (r resting) rows(trained *job.TrainResult) int64 {
	r.Helper()
	info, err := job.InspectSnapshot(r.Context(), trained.Snapshot)
	if err != nil {
		r.Fatal(err)
	}
	return info.Rows
}

// TestRowsThatExpireAreCounted: a stream rests for longer than rows last, and the whole model expires with
// one batch. The result, the log and the metrics report it.
func TestRowsThatExpireAreCounted(t *testing.T) {
	t.Parallel()
	s, dir := newResting(t), filepath.Join(t.TempDir(), "run")
	s.produce(500, 1000, 0)
	r, log, counted := s.train(dir)
	if len(r.RowsRemoved) > 0 || strings.Contains(log, "by its retention") || len(counted) > 0 {
		t.Errorf("nothing expired: %v, %v\n%s", r.RowsRemoved, counted, log)
	}
	was := s.rows(r)
	if was == 0 {
		t.Fatal("no rows")
	}
	s.produce(300, 100_000, 20*time.Hour)
	r, log, counted = s.train(dir)
	if want := map[string]int64{"expired": was}; !maps.Equal(r.RowsRemoved, want) || counted["expired"] != float64(was) {
		t.Errorf("removed %v and %v in the metrics, want %v", r.RowsRemoved, counted, want)
	}
	if n := strings.Count(log, "much of a table went by its retention"); n != 1 || !strings.Contains(log, "cause=expired") {
		t.Errorf("%d warnings, want one:\n%s", n, log)
	}
}

// TestStepsOfTimeAreBounded: one record of the future, and then a rest of the stream, let everything expire.
// With retention.max_step they remove nothing, and the bits depend neither on restarts nor on shards.
func TestStepsOfTimeAreBounded(t *testing.T) {
	t.Parallel()
	s, dir := newResting(t), t.TempDir()
	const step = "retention.max_step=10m"
	plain, stopped := filepath.Join(dir, "plain"), filepath.Join(dir, "stopped")
	var lost, kept *job.TrainResult
	train := func() {
		t.Helper()
		lost, _, _ = s.train(plain)
		kept, _, _ = s.train(stopped, step, "ps.shards=2")
	}
	s.produce(500, 1000, 0)
	train()
	was := s.rows(kept)
	if was == 0 || s.rows(lost) != was {
		t.Fatalf("%d rows and %d, want as many", was, s.rows(lost))
	}
	s.produce(1, 5000, 20*time.Hour) // in one batch with the next ones
	s.produce(299, 10_000, time.Second)
	train()
	if lost.RowsRemoved["expired"] < was || s.rows(lost) > was/10 {
		t.Errorf("without a bound %v of %d rows expired and %d are there: the test says nothing", lost.RowsRemoved, was, s.rows(lost))
	}
	if len(kept.RowsRemoved) > 0 || s.rows(kept) < was+was/2 {
		t.Errorf("a record of the future: %v of %d rows expired, %d are there", kept.RowsRemoved, was, s.rows(kept))
	}
	was = s.rows(kept)
	s.produce(300, 20_000, 22*time.Hour)
	train()
	if len(kept.RowsRemoved) > 0 || s.rows(kept) < was {
		t.Errorf("a rest of the stream: %v of %d rows expired, %d are there", kept.RowsRemoved, was, s.rows(kept))
	}
	want := digest(t, kept.Snapshot)
	for _, shards := range []string{"ps.shards=1", "ps.shards=2"} {
		r, _, _ := s.train(filepath.Join(dir, shards), step, shards)
		if got := digest(t, r.Snapshot); got != want {
			t.Errorf("%s in one run: digest %s, want %s as after two restarts", shards, got, want)
		}
	}
	// 22 hours are 126 more steps, and after 30 of them the rows of before begin to go.
	s.produce(50*40, 30_000, 22*time.Hour)
	if train(); len(kept.RowsRemoved) == 0 {
		t.Error("rows never expire")
	}
}
