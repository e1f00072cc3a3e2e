package job_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
)

// TestTimesInSeconds: records whose times are seconds, or that have none, are reported by a backfill
// and by training with retention. Nothing was removed before them, and nothing says so.
func TestTimesInSeconds(t *testing.T) {
	t.Parallel()
	const seconds, removed = "times look like seconds, not milliseconds", "what was removed"
	for name, c := range map[string]struct {
		when time.Time // of a record
		set  string    // for training; empty: a backfill
		want bool
	}{
		"backfill":               {when: time.UnixMilli(at(1).Unix()), want: true},
		"backfill, before 1970":  {when: time.UnixMilli(-60_000), want: true},
		"backfill, milliseconds": {when: at(1)},
		"retention":              {when: time.UnixMilli(at(1).Unix()), set: "retention={expire: 720h}", want: true},
		"retention, right":       {when: at(1), set: "retention={expire: 720h}"},
		"no retention":           {when: time.UnixMilli(at(1).Unix()), set: "retention={}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 1)
			records := make([]broker.Record, 40)
			for i := range records {
				records[i] = broker.Record{Value: []byte(lineAt(i)), Time: c.when}
			}
			if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 0, broker.Batch{}, records...); err != nil {
				t.Fatal(err)
			}
			var notices []string
			opts := job.RunOptions{Notice: func(s string) { notices = append(notices, s) }}
			var err error
			if c.set == "" {
				_, err = j.backfill(0, 2, opts)
			} else {
				_, err = job.Run(t.Context(), j.config("source.kafka.end=latest", c.set), opts)
			}
			if err != nil {
				t.Fatal(err)
			}
			has := func(text string) bool {
				return slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, text) })
			}
			if has(seconds) != c.want || has(removed) {
				t.Errorf("notices %q; %q is wanted: %v", notices, seconds, c.want)
			}
		})
	}
}

// TestBackfillCountsOtherTimes: records of other times between those of the range are trained on, and
// counted.
func TestBackfillCountsOtherTimes(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	times := []float64{0.5, 1, 1.2, 7, 1.9, 0.1, 1.5, 3}
	records := make([]broker.Record, len(times))
	for i, h := range times {
		records[i] = broker.Record{Value: []byte(lineAt(i)), Time: at(h)}
	}
	if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 0, broker.Batch{Size: 1}, records...); err != nil {
		t.Fatal(err)
	}
	// Times 1 to 2 begin at offset 1, and the first one from 2 on is at offset 3.
	for name, c := range map[string]struct{ from, to, examples, others float64 }{
		"ascending": {1, 2, 2, 0},
		"mixed":     {1, 6.5, 2, 0},
		"outside":   {1.1, 8, 6, 1},
	} {
		cfg := []string{"dir=" + t.TempDir()}
		r, err := j.backfill(c.from, c.to, job.RunOptions{}, cfg...)
		if err != nil {
			t.Fatal(err)
		}
		if r.Examples != int64(c.examples) || r.Backfill.OtherTimes != int64(c.others) {
			t.Errorf("%s: %d examples, %d of other times; want %v and %v", name, r.Examples, r.Backfill.OtherTimes, c.examples, c.others)
		}
	}
}
