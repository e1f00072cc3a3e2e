//go:build unix

package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// clicks are rows that every kind of source of [TestEveryCommandWithEverySource] holds in its own way.
type clickRow struct {
	user, item int64
	price      float64
	city       string
	click      int64
}

func clickRows(n int) []clickRow {
	out := make([]clickRow, n)
	for i := range out {
		out[i] = clickRow{int64(i % 17), int64(100 + i%29), float64(i%7) + .5, []string{"rome", "oslo", "kyiv"}[i%3], int64(i*i) % 5 % 2}
	}
	return out
}

func exampleOf(r clickRow) []byte {
	var e example.Encoder
	e.Int64s("user", r.user)
	e.Int64s("item", r.item)
	e.Floats("price", float32(r.price))
	e.Bytes("city", []byte(r.city))
	e.Floats("click", float32(r.click))
	return e.Append(nil)
}

func textOf(rows []clickRow, header, format string) []byte {
	var b bytes.Buffer
	b.WriteString(header)
	for _, r := range rows {
		fmt.Fprintf(&b, format+"\n", r.user, r.item, r.price, r.city, r.click)
	}
	return b.Bytes()
}

func zipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // into memory
	_ = w.Close()
	return b.Bytes()
}

func tfrecords(t *testing.T, rows []clickRow) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	for _, r := range rows {
		if err := w.Write(exampleOf(r)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parquetOf(t *testing.T, rows []clickRow) []byte {
	t.Helper()
	type stored struct {
		User  int64   `parquet:"user"`
		Item  int32   `parquet:"item"`
		Price float64 `parquet:"price"`
		City  string  `parquet:"city"`
		Click bool    `parquet:"click"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[stored](&b)
	for i, r := range rows {
		_, err := w.Write([]stored{{r.user, int32(r.item), r.price, r.city, r.click == 1}})
		if err == nil && i%100 == 99 {
			err = w.Flush() // a row group
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// everySource makes one of each kind and returns what names it on the command line, and what else a command needs to
// end by itself.
func everySource(t *testing.T, dir string) map[string][]string {
	t.Helper()
	rows := clickRows(300)
	b, err := broker.Start(broker.Options{Topics: map[string]int{"examples": 4, "lines": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	// Partitions as streams have them: one is empty, one has fewer records than anybody asks for.
	var lines []broker.Record
	for line := range bytes.SplitSeq(bytes.TrimSpace(textOf(rows, "", `{"user": %d, "item": %d, "price": %g, "city": %q, "click": %d}`)), []byte{'\n'}) {
		lines = append(lines, broker.Record{Value: line})
	}
	var examples []broker.Record
	for _, r := range rows {
		examples = append(examples, broker.Record{Value: exampleOf(r)})
	}
	for _, p := range []struct {
		topic     string
		partition int
		records   []broker.Record
	}{{"examples", 0, examples[:2]}, {"examples", 2, examples[2:]}, {"lines", 1, lines}} {
		if err := broker.Produce(t.Context(), b.Addrs(), p.topic, p.partition, broker.Batch{}, p.records...); err != nil {
			t.Fatal(err)
		}
	}
	addr := "kafka://" + b.Addrs()[0] + "/"
	ends := []string{"--set", "source.kafka.end=latest"}
	out := map[string][]string{
		"kafka tf_example": append([]string{addr + "examples"}, ends...), "kafka jsonl": append([]string{addr + "lines"}, ends...),
		"synthetic": {"synthetic", "--set", "source.synthetic.examples=2000"},
	}
	csv := textOf(rows, "user,item,price,city,click\n", "%d,%d,%g,%s,%d")
	var libfm bytes.Buffer
	for _, r := range rows {
		fmt.Fprintf(&libfm, "%d %d:1 %d:1\n", 2*r.click-1, r.user, r.item)
	}
	records := tfrecords(t, rows)
	for name, data := range map[string][]byte{
		"a.csv": csv, "b.csv.gz": zipped(csv), "c.tsv": textOf(rows, "", "%d\t%d\t%g\t%s\t%d"), "d.libfm": libfm.Bytes(), "e-00000-of-00002.gz": zipped(libfm.Bytes()),
		"f.jsonl": textOf(rows, "", `{"user": %d, "item": %d, "price": %g, "city": %q, "click": %d}`), "g.tfrecord": records, "h-part": zipped(records),
		"i.parquet": parquetOf(t, rows),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		out[name] = []string{path}
	}
	return out
}

// everything lists the files below a folder with their sizes.
func everything(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if !d.IsDir() {
			out = append(out, fmt.Sprintf("%s %d", path, info.Size()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEveryCommandWithEverySource: for each kind of source, inspect shows it, init writes a job, and every other command
// works with that job; inspect and check change nothing.
func TestEveryCommandWithEverySource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for kind, args := range everySource(t, t.TempDir()) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(dir, strings.ReplaceAll(kind, " ", "-"))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			target, set := args[0], args[1:]
			file, run := filepath.Join(dir, "job.yaml"), filepath.Join(dir, "run")
			ok := func(args ...string) outcome {
				t.Helper()
				o := monolith(t, args...)
				o.wants(t, 0)
				if o.took > 5*time.Minute {
					t.Errorf("%v took %v", args, o.took)
				}
				return o
			}
			label := "click"
			if strings.HasPrefix(filepath.Base(target), "c.tsv") {
				label = "c5" // no line names the columns
			}
			ok("init", target, "--out", file, "--label", label, "--timeout", "30s")
			set = append(set, "--set", "dir="+run, "--set", "train.on_bad_row=dead_letter", "--set", "train.dead_letter.file="+filepath.Join(dir, "bad.jsonl"))
			with := func(command string, more ...string) []string {
				return slices.Concat([]string{command, file}, set, more)
			}
			before := everything(t, dir)
			for _, target := range [][]string{{target}, append([]string{file}, set...)} {
				o := ok(slices.Concat([]string{"inspect"}, target, []string{"-n", "7"})...)
				if strings.Contains(o.stdout, "bytes)") || !strings.Contains(o.stdout, "300 records looked at") && kind != "synthetic" {
					t.Errorf("inspect %v:\n%s", target, o.stdout)
				}
				o = ok(slices.Concat([]string{"inspect"}, target, []string{"--json"})...)
				var shown struct {
					Result struct {
						Read     int
						Columns  []struct{ Name, Type string }
						Features []struct {
							Name, Kind string
							Share      float64
							Examples   []any
						}
						Rows  []struct{ Record, Features map[string]any }
						Parse string
						Notes []string
					}
				}
				if err := json.Unmarshal([]byte(o.stdout), &shown); err != nil {
					t.Fatalf("%v in %s", err, o.stdout)
				}
				r := shown.Result
				if len(r.Columns) == 0 || len(r.Rows) != 5 || len(r.Rows[0].Record) == 0 || len(r.Notes) > 0 || (len(r.Features) == 0) == (r.Parse == "") {
					t.Errorf("inspect %v: %s", target, o.stdout)
				}
				for _, f := range r.Features {
					if f.Share == 0 || len(f.Examples) == 0 || f.Kind == "sparse" && !strings.Contains(fmt.Sprint(f.Examples[0]), ":") {
						t.Errorf("inspect %v: feature %+v", target, f)
					}
				}
			}
			ok(with("check")...)
			if after := everything(t, dir); !slices.Equal(before, after) {
				t.Errorf("inspect or check has changed something: %q, then %q", before, after)
			}
			ok(with("plan")...)
			ok(with("plan", "--format", "json")...)
			ok(with("train", "--print-config")...)
			var trained struct {
				Result struct {
					Examples int
					Epochs   int
					HeldOut  int              `json:"held_out"` // by eval.holdout, which init writes for files
					BadRows  map[string]int64 `json:"bad_rows"`
				}
			}
			if err := json.Unmarshal([]byte(ok(with("train", "--json")...).stdout), &trained); err != nil {
				t.Fatal(err)
			}
			heldOut := trained.Result.HeldOut
			if n := trained.Result.Examples; n+heldOut != 300*max(trained.Result.Epochs, 1) && kind != "synthetic" || n == 0 || len(trained.Result.BadRows) > 0 {
				t.Errorf("%+v is trained", trained)
			}
			ok("inspect", run)
			if heldOut > 0 { // of files
				if o := ok(with("eval", "--json")...); !strings.Contains(o.stdout, `"auc"`) || !strings.Contains(o.stdout, fmt.Sprintf(`"examples": %d,`, heldOut/max(trained.Result.Epochs, 1))) {
					t.Errorf("%d examples are held out:\n%s", heldOut, o.stdout)
				}
				return
			}
			// The source itself serves to evaluate a stream.
			var eval []string
			for _, s := range set {
				if rest, ok := strings.CutPrefix(s, "source."); ok {
					eval = append(eval, "--set", "eval.source."+rest)
				}
			}
			if address, ok := strings.CutPrefix(target, "kafka://"); ok {
				host, topic, _ := strings.Cut(address, "/")
				eval = append(eval, "--set", "eval.source.kafka.brokers="+host, "--set", "eval.source.kafka.topic="+topic)
			}
			o := ok(with("eval", append(eval, "--json")...)...)
			if !strings.Contains(o.stdout, `"auc"`) {
				t.Error(o.stdout)
			}
		})
	}
}

// TestCommandsRefuseWhatTheyCannotUse: a command that is given something of another kind says what it is, and what to do.
func TestCommandsRefuseWhatTheyCannotUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	csv := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(csv, textOf(clickRows(50), "user,item,price,city,click\n", "%d,%d,%g,%s,%d"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "job.yaml")
	monolith(t, "init", csv, "--out", file).wants(t, 0)
	run := filepath.Join(dir, "run")
	monolith(t, "train", file, "--set", "dir="+run).wants(t, 0)
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	targets := map[string]string{
		"data": csv, "snapshot dir": run, "missing": filepath.Join(dir, "b.csv"), "missing job": filepath.Join(dir, "jbo.yaml"), "empty": empty,
		"folder": dir, "topic": "kafka://127.0.0.1:1/x", "no topic": "kafka://127.0.0.1:1",
		"nothing": t.TempDir(),
	}
	for _, x := range []struct {
		command, target string
		code            int
		words           []string
	}{
		{"*", "data", 2, []string{"is data, not a job file", "monolith init"}},
		{"*", "snapshot dir", 2, []string{"is a folder, not a job file"}},
		{"*", "missing", 2, []string{"no such job file"}},
		{"*", "missing job", 2, []string{"no such job file", `did you mean "` + file}},
		{"*", "empty", 2, []string{"is empty; a job begins with"}},
		{"*", "folder", 2, []string{"is a folder, not a job file"}},
		{"*", "topic", 2, []string{"is data, not a job file", "monolith init"}},
		{"inspect", "missing", 2, []string{"no file matches", "a.csv"}},
		{"inspect", "missing job", 2, []string{"no such job file", "job.yaml"}},
		{"inspect", "empty", 2, []string{"nothing in it"}},
		{"inspect", "folder", 2, []string{"folder without snapshots", "/*"}},
		{"inspect", "topic", 3, []string{"127.0.0.1:1"}},
		{"inspect", "no topic", 2, []string{"is not kafka://host:port/topic"}},
		{"init", "missing", 2, []string{"no file matches", "a.csv"}},
		{"init", "missing job", 2, []string{"is a job file already"}},
		{"init", "empty", 2, []string{"nothing in it"}},
		{"init", "folder", 2, []string{"folder without snapshots", "/*"}},
		{"init", "nothing", 2, []string{"an empty folder", "a pattern"}},
		{"init", "snapshot dir", 2, []string{"folder of snapshots"}},
		{"init", "topic", 3, []string{"127.0.0.1:1"}},
	} {
		commands := []string{x.command}
		if x.command == "*" {
			commands = []string{"train", "eval", "check", "plan", "ps"}
		}
		for _, command := range commands {
			t.Run(command+" "+x.target, func(t *testing.T) {
				t.Parallel()
				args := []string{command, targets[x.target]}
				if command == "inspect" || command == "init" {
					args = append(args, "--timeout", "5s")
				}
				code := x.code
				if command == "check" && x.target == "empty" {
					code = 4 // a finding, like every fault of a job that is there
				}
				o := monolith(t, args...)
				if code == 4 {
					o.stderr += o.stdout
				}
				o.wants(t, code, x.words...)
			})
		}
	}
}

// TestInspectIsNotHeldUp: topics with few records, an endless rate and a source that is away do not make inspect wait
// longer than its timeout, and bad rows go nowhere.
func TestInspectIsNotHeldUp(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"few": 3, "none": 2, "bad": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	row := exampleOf(clickRows(1)[0])
	for p, records := range map[int][]broker.Record{1: {{Value: row}}, 2: {{Value: row}, {Value: row}}} {
		if err := broker.Produce(t.Context(), b.Addrs(), "few", p, broker.Batch{}, records...); err != nil {
			t.Fatal(err)
		}
	}
	if err := broker.Produce(t.Context(), b.Addrs(), "bad", 0, broker.Batch{}, append(broker.Values("x", "y"), broker.Record{Value: row})...); err != nil {
		t.Fatal(err)
	}
	job := func(topic, more string) (path, dir string) {
		dir = t.TempDir()
		text := fmt.Sprintf(smallJob, dir, fmt.Sprintf("{kafka: {brokers: [%q], topic: %s, start: latest}}", b.Addrs()[0], topic))
		return writeJob(t, strings.Replace(text, "batch: 10", "batch: 10"+more, 1)), dir
	}
	few, _ := job("few", "")
	o := monolith(t, "inspect", few, "--timeout", "20m")
	o.wants(t, 0)
	if o.took > 10*time.Minute || !strings.Contains(o.stdout, "3 records looked at") || !strings.Contains(o.stdout, "never ends") {
		t.Errorf("took %v:\n%s", o.took, o.stdout)
	}
	none, _ := job("none", "")
	o = monolith(t, "inspect", none)
	o.wants(t, 0)
	if !strings.Contains(o.stdout, "there are no records yet") {
		t.Error(o.stdout)
	}
	bad, dir := job("bad", ", on_bad_row: dead_letter, dead_letter: {file: DIR/bad.jsonl}")
	text, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, bytes.ReplaceAll(text, []byte("DIR"), []byte(dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	o = monolith(t, "inspect", bad)
	o.wants(t, 0)
	if !strings.Contains(o.stdout, "bad rows") || !strings.Contains(o.stdout, "bad-00000 position 1") {
		t.Error(o.stdout)
	}
	if left := everything(t, dir); len(left) > 0 {
		t.Errorf("inspect has written %q", left)
	}
	slow := writeJob(t, fmt.Sprintf(smallJob, dir, "{synthetic: {examples: 0, rate: 1}}"))
	monolith(t, "inspect", slow).wants(t, 0)
	away := writeJob(t, fmt.Sprintf(smallJob, dir, "{kafka: {brokers: [192.0.2.1:9092], topic: x}}"))
	if o := monolith(t, "inspect", away, "--timeout", "1s"); o.code != 3 || o.took > 55*time.Second || !strings.Contains(o.stderr, "192.0.2.1:9092") {
		t.Errorf("took %v, code %d: %s", o.took, o.code, o.stderr)
	}
}
