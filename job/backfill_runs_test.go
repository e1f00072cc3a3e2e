package job_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// errKilled ends runs that are to end at once.
var errKilled = errors.New("killed by the test")

// interrupt returns options by which a run is drained, or ended at once, when it has made so many steps. It makes later ones slowly: the run
// is to end while there is much to do.
func interrupt(t *testing.T, steps int, drain bool) (context.Context, job.RunOptions) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	stop := make(chan struct{})
	made := 0
	return ctx, job.RunOptions{Drain: stop, Observe: func(trainstep.Observation) {
		switch made++; {
		case made < steps:
			return
		case made == steps && drain:
			close(stop)
		case made == steps:
			cancel(errKilled)
		}
		time.Sleep(30 * time.Millisecond)
	}}
}

// interrupted runs a backfill that is interrupted, and reports whether it is complete.
func (j *topicJob) interrupted(from, to float64, steps int, drain bool, set ...string) (complete bool) {
	j.t.Helper()
	ctx, opts := interrupt(j.t, steps, drain)
	opts.Backfill = &job.Range{From: at(from), To: at(to)}
	r, err := job.Run(ctx, j.config(set...), opts)
	if err != nil && (drain || !errors.Is(err, errKilled)) {
		j.t.Fatal(err)
	}
	return err == nil && r.Backfill.Complete
}

// untouched runs a backfill and the stream after it in a dir of their own, and returns what was learnt.
func (j *topicJob) untouched(from, to float64, set ...string) string {
	j.t.Helper()
	set = append(set, "dir="+filepath.Join(j.t.TempDir(), "untouched"))
	if _, err := j.backfill(from, to, job.RunOptions{}, set...); err != nil {
		j.t.Fatal(err)
	}
	return j.finish(set...)
}

// finish trains on the stream to its end and returns what was learnt.
func (j *topicJob) finish(set ...string) string {
	j.t.Helper()
	r, err := job.Run(j.t.Context(), j.config(append(set, "source.kafka.end=latest")...), job.RunOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	digest, _ := learnt(j.t, r.Snapshot)
	return digest
}

// TestBackfillAtTheBordersOfEpochs ends backfills of four epochs at, before and after the border between two of them, in order and at once:
// what is learnt is what nobody interrupted learns. An epoch is six batches, and the last hour of files ends with one too.
func TestBackfillAtTheBordersOfEpochs(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"topic", "files", "shuffled files"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 2)
			j.happen(2, 120, 0, 3)
			j.happen(2, 40, 3, 4)
			set := []string{certain, "backfill.epochs=4"}
			if where != "topic" {
				dir := t.TempDir()
				writeHours(t, dir, 0, 40, 0, 1, 2)
				set = append(set, hourly(dir))
			}
			if where == "shuffled files" {
				set = append(set, "backfill.shuffle_rows=50")
			}
			want := j.untouched(0, 3, set...)
			border := false
			for steps := 3; steps <= 7; steps++ {
				for _, drain := range []bool{true, false} {
					set := append(set, "dir="+filepath.Join(t.TempDir(), "run"))
					for trained, lives := int64(0), 0; trained < 480; lives++ {
						ctx, opts := interrupt(t, steps, drain && lives%2 == 0)
						if lives == 2 {
							ctx, opts = t.Context(), job.RunOptions{}
						}
						opts.Backfill = &job.Range{From: at(0), To: at(3)}
						r, err := job.Run(ctx, j.config(set...), opts)
						if err == nil {
							trained += r.Examples
							border = border || trained%120 == 0 && trained < 480
						} else if !errors.Is(err, errKilled) {
							t.Fatal(err)
						} else if trained, err = inSnapshot(t, j.config(set...)); err != nil {
							t.Fatal(err)
						}
					}
					if got := j.finish(set...); got != want {
						t.Errorf("%d steps, drained %v: learnt %s, %s untouched", steps, drain, got, want)
					}
				}
			}
			if !border {
				t.Error("no life ended at a border: no test")
			}
		})
	}
}

// inSnapshot is how many examples of history the newest snapshot of a job has.
func inSnapshot(t *testing.T, cfg *job.Config) (examples int64, err error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(cfg.Dir, "snapshots")); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	info, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if errors.Is(err, pipeline.ErrConfig) {
		return 0, nil // the first was not written yet
	}
	if err != nil {
		return 0, err
	}
	for _, p := range info.Positions["backfill"] {
		examples += p.Rows
	}
	return examples, nil
}

// TestBackfillOfParquet: history in Parquet columns teaches what the same history in csv does, also interrupted and mixed, while the topic's
// records are csv.
func TestBackfillOfParquet(t *testing.T) {
	t.Parallel()
	type row struct {
		Item  int64  `parquet:"item"`
		Click int32  `parquet:"click"`
		User  string `parquet:"user"`
	}
	j := newTopicJob(t, false, 2)
	j.text = strings.Replace(j.text, "format: libfm, fields: [a, b, c]", "format: csv, columns: [click, user, item], features: [{name: user}, {name: item}], label: click", 1)
	line := func(r row) string { return fmt.Sprintf("%d,%s,%d", r.Click, r.User, r.Item) }
	dir, csv := t.TempDir(), t.TempDir()
	i := 0
	made := func() (rows []row) {
		for range 130 {
			rows = append(rows, row{int64(i % 13), int32(i % 2), fmt.Sprintf("u%d", i%7)})
			i++
		}
		return rows
	}
	for hour := range 3 {
		rows := made()
		var text strings.Builder
		for _, r := range rows {
			text.WriteString(line(r) + "\n")
		}
		hours := at(float64(hour)).Format("2006-01-02-15")
		if err := parquet.WriteFile(filepath.Join(dir, hours+".parquet"), rows, parquet.MaxRowsPerRowGroup(50)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(csv, hours+".csv"), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var records []broker.Record
	for k, r := range made() {
		records = append(records, broker.Record{Value: []byte(line(r)), Time: at(3 + float64(k)/200)})
	}
	if err := broker.Produce(t.Context(), j.broker.Addrs(), "clicks", 0, broker.Batch{Size: 10}, records...); err != nil {
		t.Fatal(err)
	}
	from := func(format, dir string) string {
		return fmt.Sprintf("backfill.source.%s.files=%s", format, filepath.Join(dir, "{yyyy}-{MM}-{dd}-{HH}.*"))
	}
	want := j.untouched(0, 3, certain, "backfill.epochs=2", from("text", csv))
	set := []string{certain, "backfill.epochs=2", from("parquet", dir)}
	for range 2 {
		if j.interrupted(0, 3, 7, true, set...) {
			t.Fatal("complete after two times 7 of 39 steps")
		}
	}
	r, err := j.backfill(0, 3, job.RunOptions{}, set...)
	if err != nil || !r.Backfill.Complete || r.Backfill.Files != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := j.finish(set...); got != want {
		t.Errorf("learnt %s from Parquet, %s from csv", got, want)
	}
	mixed := []string{certain, from("parquet", dir), "backfill.shuffle_rows=100", "dir=" + filepath.Join(t.TempDir(), "mixed")}
	if r, err := j.backfill(0, 3, job.RunOptions{}, mixed...); err != nil || r.Examples != 390 {
		t.Errorf("mixed: %+v, %v; want 390 examples", r, err)
	}
}

// TestBackfillWritesOutputs: outputs have the rows and predictions of history and of the stream after it, each once for each time that it was
// trained on, however often the backfill was ended.
func TestBackfillWritesOutputs(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"topic", "files"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, false, 2)
			j.happen(2, 120, 0, 3)
			j.happen(2, 60, 3, 4)
			set := []string{certain, "backfill.epochs=2", "snapshot.every=10ms"}
			if where == "files" {
				dir := t.TempDir()
				writeHours(t, dir, 0, 40, 0, 1, 2)
				set = append(set, hourly(dir))
			}
			outputs := func(dir string) string {
				return fmt.Sprintf("outputs=[{name: rows, of: rows, to: {parquet: {dir: %q, rows_per_file: 50}}}, {name: lines, of: predictions, to: {jsonl: {dir: %q, rows_per_file: 70}}}]", dir+"-rows", dir+"-lines")
			}
			dir := t.TempDir()
			whole, ended := filepath.Join(dir, "whole"), filepath.Join(dir, "ended")
			want := j.untouched(0, 3, append(set, outputs(whole))...)
			set = append(set, outputs(ended))
			lives := 0
			for drain := false; !j.interrupted(0, 3, 4, drain, set...); drain = !drain {
				if lives++; lives > 30 {
					t.Fatal("never complete")
				}
			}
			if lives < 3 {
				t.Fatalf("%d lives are no test", lives)
			}
			if got := j.finish(set...); got != want {
				t.Errorf("learnt %s, %s untouched", got, want)
			}
			rows := rowsIn(t, whole+"-rows")
			if len(rows) != 2*120+60 {
				t.Errorf("%d rows were written, want %d", len(rows), 2*120+60)
			}
			if diff := cmp.Diff(rows, rowsIn(t, ended+"-rows")); diff != "" {
				t.Errorf("rows (-untouched +ended):\n%.1500s", diff)
			}
			lines := linesIn(t, whole+"-lines")
			if got := linesIn(t, ended+"-lines"); len(lines) != len(rows) || !maps.Equal(lines, got) {
				t.Errorf("%d predictions untouched; ended (-untouched +ended):\n%.1500s", len(lines), cmp.Diff(lines, got))
			}
		})
	}
}

// TestBackfillByWorkers: two workers with shards elsewhere begin a backfill at the same moment, while records come after its end, and one
// dies; the stream after it is read by both. Every example counts as often as it is to.
func TestBackfillByWorkers(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"topic", "files"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			j := newTopicJob(t, true, 4)
			j.happen(4, 2000, 0, 3)
			set := []string{"backfill.epochs=2", "ps.lease=5s"}
			if where == "files" {
				dir := t.TempDir()
				writeHours(t, dir, 0, 1000, 0, 1)
				set = append(set, hourly(dir), "backfill.in_order=false", "backfill.on_missing=skip")
			}
			end := j.serve()
			defer end()
			range_ := &job.Range{From: at(0), To: at(4)} // more may come at its end: the workers must agree where that is
			type ended struct {
				r   *job.TrainResult
				err error
			}
			work := func(ctx context.Context, name string, opts job.RunOptions) chan ended {
				out := make(chan ended, 1)
				opts.Worker, opts.Backfill = name, range_
				cfg := j.config(set...)
				go func() {
					r, err := job.Run(ctx, cfg, opts)
					out <- ended{r, err}
				}()
				return out
			}
			ctx, opts := interrupt(t, 5, false)
			a, b := work(ctx, "a", opts), work(t.Context(), "b", job.RunOptions{})
			for range 20 {
				j.happen(4, 4, 3.9, 3.99)
			}
			if e := <-a; e.err == nil {
				t.Log("worker a ended before it could be killed")
			} else if !errors.Is(e.err, errKilled) {
				t.Fatal(e.err)
			}
			e := <-b
			if e.err != nil || !e.r.Backfill.Complete {
				t.Fatalf("%+v, %v", e.r, e.err)
			}
			begins := int64(0)
			for _, at := range e.r.Backfill.Begins {
				begins += at
			}
			runs := []*running{j.start("a"), j.start("b")}
			rest := int64(j.made) - begins
			for deadline := time.Now().Add(3 * time.Minute); runs[0].examples.Load()+runs[1].examples.Load() < rest/20*20; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d and %d examples after 3 minutes, want %d", runs[0].examples.Load(), runs[1].examples.Load(), rest)
				}
			}
			last := runs[0].drained(t)
			if r := runs[1].drained(t); r.Snapshot > last.Snapshot {
				last = r
			}
			info, err := job.InspectSnapshot(t.Context(), last.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			var total uint64
			_, seen := learnt(t, last.Snapshot)
			for _, n := range seen {
				total += n
			}
			expect := int64(0) // a batch that is not full is drained only if it was read
			for split, at := range e.r.Backfill.Begins {
				if p, begun := info.Positions["kafka"][split]; begun {
					expect += int64(p.Position) - at
				}
			}
			if expect < rest/20*20 {
				t.Errorf("%d examples of the stream are counted, %d were trained on", expect, rest/20*20)
			}
			if where == "files" {
				expect += 2 * 2000
			} else {
				expect += 2 * begins
			}
			if int64(total) != 3*expect {
				t.Errorf("ids were trained on %d times, want %d: the stream begins at %v of %d records", total, 3*expect, e.r.Backfill.Begins, j.made)
			}
		})
	}
}

// TestBackfillNamesTheGap: an error by retention says which records of which partition are gone.
func TestBackfillNamesTheGap(t *testing.T) {
	t.Parallel()
	j := newTopicJob(t, false, 2)
	j.happen(2, 1600, 0, 3)
	if j.interrupted(0, 2, 4, true, certain) {
		t.Fatal("complete after 4 of 54 steps")
	}
	if err := j.broker.DeleteRecords("clicks", 1, 500); err != nil {
		t.Fatal(err)
	}
	_, err := j.backfill(0, 2, job.RunOptions{}, certain)
	g, ok := errors.AsType[*pipeline.GapError](err)
	if !ok {
		t.Fatalf("error %v; want a gap", err)
	}
	for _, want := range []string{"clicks", "clicks-00001", fmt.Sprintf("position %d ", g.Want), "[500,", "on_gap"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
