package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// proposed is the job that is written for a file of these lines.
func proposed(t *testing.T, name, text string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := job.Propose(t.Context(), file, job.ProposeOptions{})
	if err != nil {
		return "", err
	}
	return p.Job, nil
}

// TestProposedJobStopsEarly: a proposed job reads its files several times in mixed order, evaluates each epoch on records that are held out, and keeps the best one. It trains on
// what pandas writes, whose first column has no name and numbers the records.
func TestProposedJobStopsEarly(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString(",user,item,label\n")
	for i := range 200 {
		fmt.Fprintf(&rows, "%d,u%d,%d,%d\n", i, i%9, i%7, i*i%11/5)
	}
	text, err := proposed(t, "clicks.csv", rows.String())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "- {name: user, slot: 1}\n    - {name: item, slot: 2}\n  label: label\n") {
		t.Errorf("other features than user and item in\n%s", text)
	}
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + t.TempDir()}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if e := cfg.Train.EarlyStop; e == nil || e.Patience != 1 || e.Metric != "log_loss" || cfg.Train.Batch != 128 || cfg.Epochs != 3 || cfg.Shuffle.Rows != 100000 {
		t.Fatalf("early stop %+v, %d epochs, shuffled %d rows", e, cfg.Epochs, cfg.Shuffle.Rows)
	}
	r, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil || r.BestSnapshot == "" || r.HeldOut < int64(10*r.Epochs) || r.HeldOut > int64(40*r.Epochs) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestProposesNothing: what no job can read says what it is.
func TestProposesNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"semicolons.csv": {"label;user;price\n1;2;3,5\n0;3;4,5\n", `fields stand between ";"`},
		"users.dat":      {"1::F::one\n2::M::two\n", `fields stand between "::"`},
		"list.json":      {`[{"label": 1, "user": 2}, {"label": 0, "user": 3}]` + "\n", "a JSON list"},
	} {
		if text, err := proposed(t, name, tt.text); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %s\n%s", name, err, tt.want, text)
		}
	}
}

// TestProposesOfParquetsTypes: dates, times and timestamps are numbers in a Parquet file, and no ids; numbers of 64 bits without a sign are ids, and it is said that some are read as negative.
func TestProposesOfParquetsTypes(t *testing.T) {
	t.Parallel()
	type row struct {
		User  uint64    `parquet:"user"`
		Small uint64    `parquet:"small"`
		Born  int32     `parquet:"born,date"`
		Shift int64     `parquet:"shift,time(microsecond)"`
		Seen  time.Time `parquet:"seen,timestamp(millisecond)"`
		Click int32     `parquet:"click"`
	}
	var rows []row
	for i := range 60 {
		rows = append(rows, row{1<<63 + uint64(i%7), uint64(i % 5), int32(19_000 + i%9), int64(i%11) * 3_600_000_000, time.Unix(int64(i%13)*86_400, 0), int32(i % 2)})
	}
	file := filepath.Join(t.TempDir(), "rows.parquet")
	if err := parquet.WriteFile(file, rows); err != nil {
		t.Fatal(err)
	}
	p, err := job.Propose(t.Context(), file, job.ProposeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# - born: left out, it is a date, which is stored as a number\n", "# - shift: left out, it is a time, which is stored as a number\n", "# - seen: left out, it is a timestamp, which is stored as a number\n",
		"{name: user, slot: 1, hash: hash}   # of numbers without a sign, those from 2^63 on are read as negative ones: ids that stay apart\n", "{name: small, slot: 2}",
	} {
		if !strings.Contains(p.Job, want) {
			t.Errorf("no %q in\n%s", want, p.Job)
		}
	}
}

// TestInspectsWhatCannotBeRead: a file without a column that can be read has a name and a note for each column all the same.
func TestInspectsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	type row struct {
		Attributes map[string]string `parquet:"attributes"`
		Place      struct {
			City string `parquet:"city"`
			Zip  int64  `parquet:"zip"`
		} `parquet:"place"`
	}
	file := filepath.Join(t.TempDir(), "rows.parquet")
	if err := parquet.WriteFile(file, []row{{Attributes: map[string]string{"a": "b"}}}); err != nil {
		t.Fatal(err)
	}
	cfg, err := job.ForTarget(file, job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := job.InspectSource(t.Context(), cfg, job.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info.Source == "" || len(info.Notes) < 2 || !strings.Contains(info.Notes[1], `column "place" cannot be read`) || !strings.Contains(info.Notes[1], "joined by dots") {
		t.Errorf("%q, %q", info.Source, info.Notes)
	}
}

// TestProposesPolicy: bad rows among those that were tried are counted and skipped, and a whole file without one keeps the strict policy.
func TestProposesPolicy(t *testing.T) {
	t.Parallel()
	clean := "user,item,click\n" + strings.Repeat("1,a,1\n2,b,0\n", 50)
	for name, tt := range map[string]struct{ text, want string }{
		"clean":    {clean, "  on_bad_row: fail "},
		"one torn": {clean + "2,c\n", "  # 1 of the 101 records that were tried are bad rows. The first: "},
		"half":     {clean + strings.Repeat("3\n", 90), "  max_bad_share: 0.74 "},
	} {
		text, err := proposed(t, "rows.csv", tt.text)
		if err != nil || !strings.Contains(text, tt.want) || strings.Contains(text, "on_bad_row: skip") == strings.Contains(text, "on_bad_row: fail ") {
			t.Errorf("%s: %v, no %q in\n%s", name, err, tt.want, text)
		}
	}
	if text, err := proposed(t, "rows.jsonl", strings.Repeat(`{"user": NaN, "click": 1}`+"\n", 9)); err == nil || !strings.Contains(err.Error(), "write null") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestProposesTheLatest: where a column says when a record happened, a comment holds out from a value of it on, and is about a tenth of the records when it takes
// effect; other columns are none.
func TestProposesTheLatest(t *testing.T) {
	t.Parallel()
	const rows = 300
	begin := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		column string
		at     func(when time.Time) string // csv
		want   string                      // "": no comment
	}{
		"text":             {"seen", func(w time.Time) string { return w.Format(time.RFC3339) }, `{by: "seen", from: "2026-10-12`},
		"dates":            {"seen", func(w time.Time) string { return w.Format(time.DateOnly) }, `{by: "seen", from: "2026-10-12"}`},
		"seconds":          {"timestamp", func(w time.Time) string { return fmt.Sprint(w.Unix()) }, `{by: "timestamp", from: "179`},
		"milliseconds":     {"seen", func(w time.Time) string { return fmt.Sprint(w.UnixMilli()) }, `{by: "seen", from: "17`},
		"day first":        {"seen", func(w time.Time) string { return w.Format("02.01.2006") }, ""},
		"day of the month": {"day", func(w time.Time) string { return w.Format("02") }, ""},
		"always the same":  {"date", func(time.Time) string { return "2026-10-01" }, ""},
		"once none":        {"seen", func(w time.Time) string { return strings.TrimPrefix(w.Format(time.RFC3339), "2026-10-05T04:00:00Z") }, ""},
		"ids":              {"item_id", func(w time.Time) string { return fmt.Sprint(w.UnixMilli()) }, ""},
	} {
		var csv strings.Builder
		fmt.Fprintf(&csv, "user,kind,%s,click\n", tt.column)
		for i := range rows {
			fmt.Fprintf(&csv, "%d,k%d,%s,%d\n", i%9+1, i%7, tt.at(begin.Add(time.Duration(i*7%rows)*time.Hour)), i%2)
		}
		text, err := proposed(t, "rows.csv", csv.String())
		if err != nil {
			t.Fatal(name, err)
		}
		before, after, ok := strings.Cut(text, "  # holdout: ")
		if ok != (tt.want != "") || !strings.HasPrefix(after, tt.want) {
			t.Errorf("%s: %s, want %s in\n%s", name, after, tt.want, text)
		}
		if !ok {
			continue
		}
		text = strings.Replace(before, "  holdout:", "  # ", 1) + "  holdout: " + after
		cfg, err := job.Decode([]byte(text), "rows.yaml", job.LoadOptions{Set: []string{"dir=" + t.TempDir()}})
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := int64(r.Epochs)
		if r.HeldOut < n*rows/20 || r.HeldOut > n*rows/6 || r.HeldOut+r.Examples != n*rows {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
