package job_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// midnight is when the first record of these tests happened.
var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// at is a time of day.
func at(hours float64) time.Time { return midnight.Add(time.Duration(hours * float64(time.Hour))) }

// lineAt is the i-th example.
func lineAt(i int) string { return fmt.Sprintf("%d %d:1 %d:1 %d:1", 1-2*(i%2), i%11, 20+i%5, 40+i%13) }

// happen publishes n examples over hours [from, to), to the partitions in turn, and returns how many each partition got of them.
func (j *topicJob) happen(partitions, n int, from, to float64) {
	j.t.Helper()
	by := map[int][]broker.Record{}
	for i := range n {
		when := at(from + (to-from)*float64(i)/float64(n)).Truncate(time.Millisecond)
		by[i%partitions] = append(by[i%partitions], broker.Record{Value: []byte(lineAt(j.made)), Time: when})
		j.made++
	}
	for p, records := range by {
		if err := broker.Produce(j.t.Context(), j.broker.Addrs(), "clicks", p, broker.Batch{Size: 7}, records...); err != nil {
			j.t.Fatal(err)
		}
	}
}

// backfill runs a backfill.
func (j *topicJob) backfill(from, to float64, opts job.RunOptions, set ...string) (*job.TrainResult, error) {
	j.t.Helper()
	opts.Backfill = &job.Range{From: at(from), To: at(to)}
	return job.Run(j.t.Context(), j.config(set...), opts)
}

// learnt is the digest of what a snapshot has learnt: rows and dense parameters with their state, without positions.
func learnt(t *testing.T, path string) (digest string, seen map[int64]uint64) {
	t.Helper()
	s, err := snapshot.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var d snapshot.Digest
	seen = map[int64]uint64{}
	for i, tbl := range s.Info().Tables {
		if err := s.Rows(i, func(rows *table.Rows) error {
			d.Rows(tbl.Name, tbl.Dim(), tbl.StateDim(), rows)
			for k, fid := range rows.Keys {
				seen[fid] += rows.Counts[k]
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		d.Dense(tensor)
	}
	return d.String(), seen
}

// occur counts the ids of the examples [from, to).
func occur(from, to int, times uint64, into map[string]uint64) {
	for i := from; i < to; i++ {
		for _, id := range strings.Fields(lineAt(i))[1:] {
			into[id] += times
		}
	}
}

// sameCounts compares how often rows were updated with how often ids occurred.
func sameCounts(t *testing.T, seen map[int64]uint64, want map[string]uint64) {
	t.Helper()
	got, expect := slices.Sorted(maps.Values(seen)), slices.Sorted(maps.Values(want))
	if !slices.Equal(got, expect) {
		t.Errorf("ids were trained on %v times, and occur %v times", got, expect)
	}
}

const certain = "deterministic=true"

// TestBackfillOfATopic trains on a time range of a topic, twice, and then on the stream: what was learnt is what two jobs with
// offsets that are written down learn, and every example counts as often as it should.
func TestBackfillOfATopic(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 3)
	j.happen(3, 30, 0, 1)  // before the range
	j.happen(3, 300, 1, 3) // in it
	j.happen(3, 60, 3, 4)  // after it
	history, err := j.backfill(1, 3, job.RunOptions{}, certain, "backfill.epochs=2")
	if err != nil {
		t.Fatal(err)
	}
	begins := map[string]int64{"clicks-00000": 110, "clicks-00001": 110, "clicks-00002": 110}
	if b := history.Backfill; history.Examples != 600 || b == nil || !b.Complete || !maps.Equal(b.Begins, begins) {
		t.Fatalf("%d examples, %+v; want 600, and the stream to begin at 110 of each partition", history.Examples, b)
	}
	j.happen(3, 60, 4, 5) // written since
	stream, err := job.Run(t.Context(), j.config(certain, "source.kafka.end=latest"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stream.Examples != 120 {
		t.Errorf("the stream had %d examples, want 120", stream.Examples)
	}
	positions(t, stream.Snapshot, map[string]int64{"clicks-00000": 150, "clicks-00001": 150, "clicks-00002": 150})
	got, seen := learnt(t, stream.Snapshot)
	want := map[string]uint64{}
	occur(30, 330, 2, want)
	occur(330, 450, 1, want)
	sameCounts(t, seen, want)

	// The oracle: jobs on offsets, one for each pass.
	dir := filepath.Join(t.TempDir(), "oracle")
	for pass, range_ := range [][2]int{{10, 110}, {10, 110}, {110, 150}} {
		set := []string{certain, "dir=" + dir, fmt.Sprintf("source_name=pass%d", pass)}
		for _, b := range []string{"start", "end"} {
			n := range_[map[string]int{"start": 0, "end": 1}[b]]
			set = append(set, fmt.Sprintf("source.kafka.%s={0: %d, 1: %d, 2: %d}", b, n, n, n))
		}
		if stream, err = job.Run(t.Context(), j.config(set...), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if want, _ := learnt(t, stream.Snapshot); got != want {
		t.Errorf("learnt %s, and %s from offsets that are written down", got, want)
	}
}

// writeHours lays history out by hour, n examples in each, in files whose names are not in the order of time, and returns the files in that
// order.
func writeHours(t *testing.T, dir string, first, n int, hours ...int) (files []string) {
	t.Helper()
	made := first
	for i, hour := range hours {
		path := filepath.Join(dir, at(float64(hour)).Format("02-01-2006/15"), fmt.Sprintf("part-%c.libfm", 'z'-i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for range n {
			text.WriteString(lineAt(made) + "\n")
			made++
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	return files
}

func hourly(dir string) string {
	return "backfill.source.text.files=" + filepath.Join(dir, "{dd}-{MM}-{yyyy}", "{HH}", "*.libfm")
}

// TestBackfillOfFiles trains on files of hours, which are read in the order of time, interrupted again and again, and continues with the
// stream: what was learnt is what one file learns that is written in that order.
func TestBackfillOfFiles(t *testing.T) {
	t.Parallel()
	for _, shuffle := range []int{0, 64} {
		t.Run(fmt.Sprintf("shuffle_rows=%d", shuffle), func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 2)
			j.happen(2, 400, 22, 26) // the last two hours are in files as well
			dir := t.TempDir()
			writeHours(t, dir, 0, 130, 21, 22, 23) // 130 is no multiple of the batch, or the window
			set := []string{certain, hourly(dir), "backfill.epochs=2", fmt.Sprintf("backfill.shuffle_rows=%d", shuffle)}
			var history *job.TrainResult
			var examples int64
			runs := 0
			for ; runs < 20 && (history == nil || !history.Backfill.Complete); runs++ {
				_, opts := interrupt(t, 9, true)
				var err error
				if history, err = j.backfill(21, 24, opts, set...); err != nil {
					t.Fatal(err)
				}
				examples += history.Examples
				if history.Backfill.Complete {
					continue
				}
				if _, err := job.Run(t.Context(), j.config(certain), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) {
					t.Fatalf("training on the stream before the backfill is complete: %v", err)
				}
			}
			begins := map[string]int64{"clicks-00000": 100, "clicks-00001": 100}
			if examples != 780 || history.Backfill.Files != 3 || !maps.Equal(history.Backfill.Begins, begins) || runs < 3 {
				t.Errorf("%d examples in %d runs, %+v", examples, runs, history.Backfill)
			}
			stream, err := job.Run(t.Context(), j.config(certain, hourly(dir), "source.kafka.end=latest"), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			positions(t, stream.Snapshot, map[string]int64{"clicks-00000": 200, "clicks-00001": 200})
			got, seen := learnt(t, stream.Snapshot)
			want := map[string]uint64{}
			occur(0, 390, 2, want)
			occur(200, 400, 1, want)
			sameCounts(t, seen, want)

			one := filepath.Join(t.TempDir(), "all.libfm")
			var text strings.Builder
			for i := range 390 {
				text.WriteString(lineAt(i) + "\n")
			}
			if err := os.WriteFile(one, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			run := filepath.Join(t.TempDir(), "oracle")
			if shuffle == 0 { // the order of a shuffle is a function of the files' bytes too
				if _, err = job.Run(t.Context(), j.config(certain, "dir="+run, "source.text.files=["+one+"]", "source_name=all", "epochs=2", "shuffle.one_split=true"), job.RunOptions{}); err != nil {
					t.Fatal(err)
				}
				if stream, err = job.Run(t.Context(), j.config(certain, "dir="+run, "source.kafka.start={0: 100, 1: 100}", "source.kafka.end=latest"), job.RunOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				if _, err = j.backfill(21, 24, job.RunOptions{}, append(set, "dir="+run)...); err != nil {
					t.Fatal(err)
				}
				if stream, err = job.Run(t.Context(), j.config(certain, "dir="+run, hourly(dir), "source.kafka.end=latest"), job.RunOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if want, _ := learnt(t, stream.Snapshot); got != want {
				t.Errorf("learnt %s, and %s without interruptions", got, want)
			}
		})
	}
}

// TestBackfillSaysWhatIsWrong: what cannot be, with what to do.
func TestBackfillSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeHours(t, dir, 0, 40, 0, 2)
	for _, tc := range []struct {
		name     string
		from, to float64
		set      []string
		before   func(j *topicJob)
		want     string // in the error; empty: none
		notice   string
		examples int64
	}{
		{name: "from after to", from: 3, to: 1, want: "from must be before to"},
		{name: "future", from: 3, to: 24 * 365 * 50, want: "in the future"},
		{name: "no records", from: 30, to: 31, notice: "no records from 2026-03-02T06:00:00Z to 2026-03-02T07:00:00Z"},
		{name: "other bounds", from: 0, to: 2, want: "was given the history from 2026-03-01T00:00:00Z to 2026-03-01T01:00:00Z, which is complete", before: func(j *topicJob) {
			if _, err := j.backfill(0, 1, job.RunOptions{}); err != nil {
				j.t.Fatal(err)
			}
		}},
		{name: "again", from: 0, to: 1, notice: "is complete: `monolith train` continues with the stream", before: func(j *topicJob) {
			if _, err := j.backfill(0, 1, job.RunOptions{}); err != nil {
				j.t.Fatal(err)
			}
		}},
		{name: "after the stream", from: 0, to: 1, want: "was trained on kafka clicks (split clicks-00000) up to position 60, and a backfill comes before the stream", before: func(j *topicJob) {
			if _, err := job.Run(j.t.Context(), j.config("source.kafka.end=latest"), job.RunOptions{}); err != nil {
				j.t.Fatal(err)
			}
		}},
		{name: "removed before", from: 0, to: 2, notice: "the oldest records of the stream are read (clicks-00000 at 15)", examples: 25 + 40, before: func(j *topicJob) {
			if err := j.broker.DeleteRecords("clicks", 0, 15); err != nil {
				j.t.Fatal(err)
			}
		}},
		{name: "missing hour", from: 0, to: 3, set: []string{hourly(dir)}, want: "1 of 3 hours have no file: 2026-03-01T01; set backfill.on_missing: skip"},
		{name: "missing hour passed over", from: 0, to: 3, set: []string{hourly(dir), "backfill.on_missing=skip"}, notice: "1 of 3 hours have no file and are passed over", examples: 80},
		{name: "no hour", from: 5, to: 6, set: []string{hourly(dir)}, want: "no hour from 2026-03-01T05:00:00Z to 2026-03-01T06:00:00Z has a file"},
		{name: "within an hour", from: 0.5, to: 3, set: []string{hourly(dir)}, want: "--from 2026-03-01T00:30:00Z is within the hour 2026-03-01T00"},
		{name: "no stream", from: 0, to: 1, set: []string{"source.text.files=[" + filepath.Join(dir, "*", "*", "*") + "]"}, want: "source text has no history"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 2)
			j.happen(2, 120, 0, 3)
			if tc.before != nil {
				tc.before(j)
			}
			var notices []string
			r, err := j.backfill(tc.from, tc.to, job.RunOptions{Notice: func(s string) { notices = append(notices, s) }}, tc.set...)
			if tc.want != "" {
				if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("error %v; want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Examples != tc.examples || !r.Backfill.Complete {
				t.Errorf("%d examples, want %d; %+v", r.Examples, tc.examples, r.Backfill)
			}
			if !slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, tc.notice) }) {
				t.Errorf("notices %q; want one with %q", notices, tc.notice)
			}
		})
	}
}

// TestBackfillAndRetention: what retention removes between the end of a backfill and training on the stream is a gap that is named, or
// counted, and so is what it removes of the range while that is read.
func TestBackfillAndRetention(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	j.happen(1, 1200, 0, 3)
	_, opts := interrupt(t, 2, true)
	r, err := j.backfill(0, 2, opts, certain)
	if err != nil {
		t.Fatal(err)
	}
	was := r.Examples
	if was == 0 || was >= 700 {
		t.Fatalf("%d examples before the interruption are no test", was)
	}
	gap := func(err error, want, first int64) {
		t.Helper()
		var g *pipeline.GapError
		if !errors.As(err, &g) || int64(g.Want) != want || int64(g.First) != first {
			t.Fatalf("error %v; want a gap at %d, the log beginning at %d", err, want, first)
		}
	}
	remove := func(to int64) {
		t.Helper()
		if err := j.broker.DeleteRecords("clicks", 0, to); err != nil {
			t.Fatal(err)
		}
	}
	remove(was + 20)
	_, err = j.backfill(0, 2, job.RunOptions{}, certain)
	gap(err, was, was+20)
	r, err = j.backfill(0, 2, job.RunOptions{}, certain, "source.kafka.on_gap=skip")
	if err != nil || r.LostRecords != 20 || r.Examples != 780-was || !r.Backfill.Complete {
		t.Fatalf("%+v, %v; want 20 lost and %d trained on", r, err, 780-was)
	}
	remove(1000)
	_, err = job.Run(t.Context(), j.config(certain, "source.kafka.end=latest"), job.RunOptions{})
	gap(err, 800, 1000)
	r, err = job.Run(t.Context(), j.config(certain, "source.kafka.end=latest", "source.kafka.on_gap=skip"), job.RunOptions{})
	if err != nil || r.LostRecords != 200 || r.Examples != 200 {
		t.Fatalf("%+v, %v; want 200 lost and 200 trained on", r, err)
	}
}

// TestBackfillAndPartitions: a partition that is added after a backfill is read from its beginning, one that is added while it is
// interrupted is the stream's.
func TestBackfillAndPartitions(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	j.happen(1, 100, 0, 2)
	drain := make(chan struct{})
	close(drain)
	if _, err := j.backfill(0, 1, job.RunOptions{Drain: drain}); err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		t.Helper()
		if err := j.broker.AddPartitions(t.Context(), "clicks", n); err != nil {
			t.Fatal(err)
		}
	}
	add(2)
	if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 1, broker.Batch{}, broker.Record{Value: []byte(lineAt(0)), Time: at(0.5)}); err != nil {
		t.Fatal(err)
	}
	r, err := j.backfill(0, 1, job.RunOptions{})
	if err != nil || !r.Backfill.Complete || r.Examples != 50 {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = job.Run(t.Context(), j.config("source.kafka.end=latest", "source.kafka.start=latest"), job.RunOptions{})
	if err != nil || r.Examples != 51 {
		t.Fatalf("%+v, %v; want 50 of the first partition and one of the second", r, err)
	}
}

// TestBackfillFilesMustStay: a file that is changed while a backfill is interrupted is no file of it.
func TestBackfillFilesMustStay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		change     func(path string) error
		set        []string
	}{
		{name: "longer", want: "bytes, and had", change: func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat(lineAt(1)+"\n", 5000)), 0o644)
		}},
		{name: "other bytes", want: "hold something else", change: rewrite},
		{name: "other bytes without order", want: "hold something else", change: rewrite, set: []string{"backfill.in_order=false"}},
		{name: "gone", want: "put it back", change: os.Remove},
		{name: "no section", want: "was begun with history in files", change: func(string) error { return nil }, set: []string{"none"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 1)
			dir := t.TempDir()
			files := writeHours(t, dir, 0, 1000, 0, 1)
			_, opts := interrupt(t, 2, true)
			set := append([]string{hourly(dir)}, tc.set...)
			again := set
			if len(tc.set) > 0 && tc.set[0] == "none" {
				set, again = set[:1], nil
			}
			if _, err := j.backfill(0, 2, opts, append(set, certain)...); err != nil {
				t.Fatal(err)
			}
			if err := tc.change(files[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := j.backfill(0, 2, job.RunOptions{}, append(again, certain)...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want one with %q", err, tc.want)
			}
		})
	}
}

// rewrite gives a file other bytes of the same number.
func rewrite(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[2] = '5' // of the first id
	return os.WriteFile(path, b, 0o644)
}

// TestBackfillSectionFaults: what a section cannot be.
func TestBackfillSectionFaults(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 1)
	for _, tc := range []struct{ set, want string }{
		{"backfill.source.text.files=a/{yyyy}-{MM}/*", "backfill.source.text.files[0]: is \"a/{yyyy}-{MM}/*\", which has no {dd}"},
		{"backfill.source.text.files=a/{yyyy}{MM}{dd}/{HH}/x,b/{yyyy}{MM}{dd}/x", "backfill.source.text.files[1]: is \"b/{yyyy}{MM}{dd}/x\", which has no {HH}"},
		{"backfill.source.synthetic.examples=10", "backfill.source: is synthetic; history is in files"},
		{"backfill.source.parquet.files=x/{yyyy}{MM}{dd}", ""},
		{"source_name=backfill", "source_name: is \"backfill\", which history is stored under"},
	} {
		_, err := job.Decode([]byte(j.text), "clicks.yaml", job.LoadOptions{Set: append(j.set, tc.set)})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v; want %q", tc.set, err, tc.want)
		}
	}
	csv := strings.NewReplacer("format: libfm, fields: [a, b, c]", "format: csv, columns: [y, a], label: y, features: [{name: a}, {name: z, column: a}]", "source: {", "backfill: {source: {text: {files: ['{yyyy}{MM}{dd}.csv']}}}\nsource: {").Replace(j.text)
	cfg, err := job.Decode([]byte(csv), "clicks.yaml", job.LoadOptions{Set: j.set})
	if err != nil || cfg.Backfill.Format != "csv" || !slices.Equal(cfg.Backfill.Columns, []string{"y", "a"}) {
		t.Fatalf("%v; columns of the files are %q", err, cfg.Backfill.Columns)
	}
	for set, want := range map[string]string{"backfill.format=tsv": "", "backfill.format=jsonl": "", "backfill.columns=y,a,a": "backfill.columns", "backfill.header=true": ""} {
		_, err := job.Decode([]byte(csv), "clicks.yaml", job.LoadOptions{Set: append(j.set, set)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v; want %q", set, err, want)
		}
	}
}

// TestBackfillHoldsOutTheSame: a job whose history is in files must hold out by a column, whose values are the same in both: places are not.
func TestBackfillHoldsOutTheSame(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
source: {kafka: {brokers: [localhost:9092], topic: clicks}}
parse: {format: csv, columns: [user, item, click], features: [{name: user}, {name: item}], label: click}
model: lr
backfill: {source: {text: {files: ["{yyyy}-{MM}-{dd}.csv"]}}}
eval: {max_examples: 1000, holdout: .1}
`
	for _, set := range []string{
		"", "eval.holdout=.2", "backfill.columns=user,item,click", "backfill.columns=item,user,click", "backfill.format=tsv", "backfill.format=jsonl",
		"backfill.source={parquet: {files: ['{yyyy}-{MM}-{dd}.parquet']}}", "backfill={epochs: 2}",
	} {
		bad := set != "backfill={epochs: 2}" // whose history is in the topic, at the same offsets
		for _, by := range []string{"", "eval.holdout={by: user, share: .1}"} {
			var sets []string
			for _, s := range []string{set, by} {
				if s != "" {
					sets = append(sets, s)
				}
			}
			_, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: sets})
			if want := "eval.holdout.by: is missing"; (err != nil) != (bad && by == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", sets, err)
			}
		}
	}
}

// TestBackfillHoldsOut: what is held out is trained on neither in the history, in the topic or in files of it, nor in the stream after it, and is what is evaluated
// afterwards, each example once.
func TestBackfillHoldsOut(t *testing.T) {
	t.Parallel()
	const hour, hours, epochs = 100, 3, 2
	line := func(i int) string { return fmt.Sprintf("%d %d:1 %d:1 %d:1", 1-2*(i%2), i%11, 20+i%5, 1000+i) } // the last id is of this example alone
	for _, tt := range []struct {
		name    string
		in      []string
		holdout string
	}{
		{"topic", nil, ".3"},
		{"topic by a field", []string{"train.workers=2"}, "{by: b, share: .4}"},
		{"files", []string{"backfill.source.text.files=" + filepath.Join("DIR", "{yyyy}-{MM}-{dd}-{HH}.libfm")}, "{by: c, share: .3}"},
		{"files at once", []string{"backfill.source.text.files=" + filepath.Join("DIR", "{yyyy}-{MM}-{dd}-{HH}.libfm"), "backfill.in_order=false", "train.workers=2"}, "{by: c, share: .3}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j, dir := newTopicJob(t, false, 2), t.TempDir()
			topic := map[int][]broker.Record{}
			for h := range hours + 1 { // the last one is the stream's
				var text strings.Builder
				for i := h * hour; i < (h+1)*hour; i++ {
					topic[i%2] = append(topic[i%2], broker.Record{Value: []byte(line(i)), Time: at(float64(i) / hour).Truncate(time.Millisecond)})
					text.WriteString(line(i) + "\n")
				}
				if err := os.WriteFile(filepath.Join(dir, at(float64(h)).Format("2006-01-02-15")+".libfm"), []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for p, records := range topic {
				if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", p, broker.Batch{Size: 7}, records...); err != nil {
					t.Fatal(err)
				}
			}
			set := []string{"eval.holdout=" + tt.holdout, "eval.max_examples=100000", fmt.Sprintf("backfill.epochs=%d", epochs), "eval.outputs=[{name: evaluated, of: rows, to: {jsonl: {dir: " + filepath.Join(dir, "rows") + "}}}]"}
			for _, s := range tt.in {
				set = append(set, strings.Replace(s, "DIR", dir, 1))
			}
			history, err := j.backfill(0, hours, job.RunOptions{}, set...)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, "source.kafka.end=latest")
			stream, err := job.Run(t.Context(), j.config(set...), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, trained := learnt(t, stream.Snapshot)
			if _, err := job.Evaluate(t.Context(), j.config(set...), job.EvalOptions{}); err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(filepath.Join(dir, "rows", "*", "*.jsonl*"))
			if err != nil {
				t.Fatal(err)
			}
			held := map[int64]int{}
			eachLine(t, paths, func(row struct{ C []int64 }) { held[row.C[0]]++ })
			for id, times := range held {
				if times != 1 || trained[id] > 0 {
					t.Fatalf("id %d was evaluated %d times and trained on %d times", id, times, trained[id])
				}
			}
			if n := len(held); n < hour/2 || n > hour*(hours+1)*6/10 {
				t.Errorf("%d of %d examples are held out", n, hour*(hours+1))
			}
			if past, now := history.Examples+history.HeldOut, stream.Examples+stream.HeldOut; past != hour*hours*epochs || now != hour || stream.Examples == hour {
				t.Errorf("history: %d trained on and %d held out of %d; stream: %d and %d of %d", history.Examples, history.HeldOut, hour*hours*epochs, stream.Examples, stream.HeldOut, hour)
			}
			if all := history.Examples/epochs + stream.Examples + int64(len(held)); all != hour*(hours+1) {
				t.Errorf("%d in the history and %d in the stream were trained on and %d evaluated, of %d", history.Examples/epochs, stream.Examples, len(held), hour*(hours+1))
			}
		})
	}
}
