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

// TestRowsThatExpireAreCounted: a stream rests for longer than rows last, and the whole model expires with one batch: the result, the log and the metrics say so.
func TestRowsThatExpireAreCounted(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	produce := func(n, from int, at time.Time) {
		t.Helper()
		out := make([]broker.Record, n)
		for i := range out {
			out[i] = broker.Record{Value: fmt.Appendf(nil, "%d %d:1 %d:1", i%2, from+i, from+i), Time: at.Add(time.Duration(i) * time.Millisecond)}
		}
		if err := broker.Produce(t.Context(), b.Addrs(), "clicks", 0, broker.Batch{Size: 50}, out...); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	text := fmt.Sprintf(`
version: 1
name: rests
dir: %s
source: {kafka: {brokers: [%s], topic: clicks, end: latest}}
parse: {format: libfm, fields: [a, b]}
model: lr
train: {batch: 50}
retention: {expire: 6h}
`, dir, strings.Join(b.Addrs(), ","))
	train := func(set ...string) (*job.TrainResult, string, map[string]float64) {
		t.Helper()
		cfg, err := job.Decode([]byte(text), "rests.yaml", job.LoadOptions{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		metrics := prometheus.NewRegistry()
		r, err := job.Run(t.Context(), cfg, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics})
		if err != nil {
			t.Fatal(err)
		}
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
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
		return r, log.String(), counted
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	produce(500, 1000, began)
	r, log, counted := train()
	if len(r.RowsRemoved) > 0 || strings.Contains(log, "by its retention") || len(counted) > 0 {
		t.Errorf("nothing expired: %v, %v\n%s", r.RowsRemoved, counted, log)
	}
	was, err := job.InspectSnapshot(t.Context(), r.Snapshot)
	if err != nil || was.Rows == 0 {
		t.Fatal(was, err)
	}
	produce(300, 100_000, began.Add(20*time.Hour))
	r, log, counted = train()
	if want := map[string]int64{"expired": was.Rows}; !maps.Equal(r.RowsRemoved, want) || counted["expired"] != float64(was.Rows) {
		t.Errorf("removed %v and %v in the metrics, want %v", r.RowsRemoved, counted, want)
	}
	if n := strings.Count(log, "much of a table went by its retention"); n != 1 || !strings.Contains(log, "cause=expired") {
		t.Errorf("%d warnings, want one:\n%s", n, log)
	}
}
