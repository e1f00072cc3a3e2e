package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestNothingIsWrittenWhereTheJobReads: every pair of places that a job reads and writes, by other names of the same place too.
func TestNothingIsWrittenWhereTheJobReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"in", "runs/j/snapshots", "old/snapshots/snap-00000001", "side"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"in/x.jsonl", "side/users.tsv", "bad.jsonl", "in/[a].jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "in", "in/linked.jsonl": "../bad.jsonl", "store": "runs/j/snapshots"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files := func(pattern string) string { return "source: {text: {files: [\"" + pattern + "\"]}}\n" }
	const loop = "source: {kafka: {brokers: [\"Localhost:9092\", \"b:1\"], topic: loop}}\n"
	letters := func(to string) string {
		return "train: {on_bad_row: dead_letter, dead_letter: {" + to + "}}\n"
	}
	for _, c := range []struct{ job, want string }{
		{loop + letters(`kafka: {brokers: ["127.0.0.1:9092"], topic: loop}`), "train.dead_letter.kafka.topic: is read by the job too (source.kafka.topic)"},
		{loop + letters(`kafka: {brokers: ["127.0.0.1:9092"], topic: bad}`), ""},
		{loop + letters(`kafka: {brokers: ["127.0.0.1:9093"], topic: loop}`), ""},
		{files("$/in/x.jsonl") + letters(`file: $/in/x.jsonl`), "train.dead_letter.file.path: is read by the job too (source.text.files)"},
		{files("$/in/*.jsonl") + letters(`file: $/in/bad.jsonl`), "(source.text.files)"},
		{files("$/link/*.jsonl") + letters(`file: $/in/../in/bad.jsonl`), "(source.text.files)"},
		{files("$/in/*.jsonl") + letters(`file: "$/link/bad-{worker}.jsonl"`), "(source.text.files)"},
		{files("$/in/b*.jsonl") + letters(`file: "$/in/{worker}x.jsonl"`), "(source.text.files)"},
		{files("$/in/*.jsonl") + letters(`file: $/bad.jsonl`), "(source.text.files)"}, // in/linked.jsonl is it
		{files("$/in/x.jsonl") + letters(`file: $/bad.jsonl`), ""},
		{files("$/in/x.jsonl.*") + letters(`file: {path: $/in/x.jsonl, max_bytes: 1MiB}`), "(source.text.files)"},
		{files("$/in/*.jsonl") + letters(`file: $/in/bad.letters`), ""},
		{files("$/in/[a].jsonl") + letters(`file: "$/in/[a].jsonl"`), "(source.text.files)"},
		{files("$/in/{INT(1,3)}.jsonl") + letters(`file: "$/in/2.jsonl"`), "(source.text.files)"},
		{files("$/*/x.jsonl") + letters(`file: "$/in/x.jsonl"`), "(source.text.files)"},
		{files("$/a") + "eval: {source: {text: {files: [$/in/*.jsonl]}}}\n" + letters(`file: $/in/y.jsonl`), "(eval.source.text.files)"},
		{files("$/a") + "predict: {source: {text: {files: [$/in/*.jsonl]}}}\n" + letters(`file: $/in/y.jsonl`), "(predict.source.text.files)"},
		{files("$/a") + "backfill: {source: {text: {files: [$/in/*.jsonl]}}}\n" + letters(`file: $/in/y.jsonl`), "(backfill.source.text.files)"},
		{files("$/a") + letters(`file: $/side/users.tsv`), "(parse.joins[0].file)"},
		{files("$/a") + letters(`file: $/job.yaml`), "(the job file)"},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {jsonl: $/side}}]\n", "outputs[0].to.jsonl.dir: is read by the job too (parse.joins[0].file)"},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {jsonl: $/out}}]\n" + letters(`file: $/out/bad.jsonl`), "train.dead_letter.file.path: is where the job writes something else too (outputs[0].to.jsonl.dir)"},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {kafka: {brokers: [\"b:1\"], topic: t}}}]\n" + letters(`kafka: {brokers: ["b:1"], topic: t}`), "is where the job writes something else too (outputs[0].to.kafka.topic)"},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {jsonl: $/runs/j/snapshots/o}}]\n", "outputs[0].to.jsonl.dir: is where the job keeps something else too (dir)"},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {jsonl: $/runs/j/o}}]\n", ""},
		{files("$/a") + "outputs: [{name: o, of: rows, to: {jsonl: $/o}}]\npredict: {to: {tsv: $/o/}}\n", "predict.to.tsv.dir: is that of output o"},
		{files("$/data/*/x.jsonl") + "predict: {to: {tsv: $/data/p}}\n", "predict.to.tsv.dir: is read by the job too (source.text.files)"},
		{files("$/data/*/x.jsonl") + "eval: {source: {text: {files: [$/a]}}, outputs: [{name: o, of: rows, to: {jsonl: $/data}}]}\n", "eval.outputs[0].to.jsonl.dir: is read by the job too (source.text.files)"},
		{files("$/data/train/x.jsonl") + "eval: {source: {text: {files: [$/a]}}, outputs: [{name: o, of: rows, to: {jsonl: $/data}}]}\n", ""},
		{files("$/a") + "snapshot: {upload: \"file://$/runs/j/snapshots\"}\n", "snapshot.upload: is where the job keeps something else too (dir)"},
		{files("$/a") + "snapshot: {upload: \"file://$/store\"}\n", "snapshot.upload: is where the job keeps something else too (dir)"},
		{files("$/a") + "snapshot: {upload: \"file://$/runs/j/snapshots/up\"}\n", "snapshot.upload: is where the job keeps something else too (dir)"},
		{files("$/a") + "snapshot: {upload: \"file://$/backup\"}\n", ""},
		{files("$/a") + "snapshot: {upload: \"file://$/old/snapshots\"}\nrestore: {from: $/old}\n", "snapshot.upload: is read by the job too (restore.from)"},
		{files("$/a") + "snapshot: {upload: \"file://$/old/snapshots\"}\nrestore: {from: $/old/snapshots/snap-00000001}\n", "snapshot.upload: is read by the job too (restore.from)"},
		{files("$/a") + "ps: {durability: wal, wal: {dir: $/runs/j/snapshots}}\n", "ps.wal.dir: is where the job keeps something else too (dir)"},
		{files("$/a") + "ps: {durability: wal, wal: {dir: $/runs/j}}\n", ""},
		{files("$/runs/j/snapshots/*/x"), "source.text.files: is in a folder of the job's dir"},
	} {
		text := "version: 1\nname: j\ndir: $/runs/j\nparse: {format: jsonl, features: [{name: user}], label: click, joins: [{file: $/side/users.tsv, columns: [id, x], key: user, key_column: id}]}\nmodel: lr\n" + c.job
		text = strings.ReplaceAll(text, "$", dir)
		_, err := job.Decode([]byte(text), filepath.Join(dir, "job.yaml"), job.LoadOptions{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%v\nwant %q", c.job, err, c.want)
		}
	}
	cfg, err := job.Decode([]byte(strings.ReplaceAll(fmt.Sprintf("version: 1\nname: j\ndir: $/runs/j\nparse: {format: jsonl, features: [{name: user}], label: click}\nmodel: lr\n%ssnapshot: {upload: \"s3://b/p\"}\n", files("$/in/*.jsonl")), "$", dir)),
		filepath.Join(dir, "job.yaml"), job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path   string
		folder bool
		ok     bool
	}{{"in/x.jsonl", false, false}, {"in/page.html", false, true}, {"in", true, false}, {"out", true, true}, {"runs/j/snapshots", true, false}, {"runs/j/snapshots/e", true, false}, {"s3://b/p/", true, false}, {"s3://b/e", true, true}} {
		path := c.path
		if !strings.Contains(path, "://") {
			path = filepath.Join(dir, path)
		}
		if err := cfg.Destination("--dir", path, c.folder); (err == nil) != c.ok || err != nil && !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}

// TestTwoListsOfBrokersOfOneCluster: lists that have no broker in common may be of one cluster, which only the brokers know.
func TestTwoListsOfBrokersOfOneCluster(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{true, false} {
		a, err := broker.Start(broker.Options{Brokers: 2, Topics: map[string]int{"loop": 1}, ClusterID: "one"})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close() //nolint:errcheck // the test is over
		letters := a.Addrs()[1]
		if !one {
			b, err := broker.Start(broker.Options{Topics: map[string]int{"loop": 1}, ClusterID: "two"})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close() //nolint:errcheck // the test is over
			letters = b.Addrs()[0]
		}
		cfg, err := job.Decode([]byte(fmt.Sprintf(`
version: 1
name: j
dir: %s
source: {kafka: {brokers: ["%s"], topic: loop, end: latest}}
parse: {format: jsonl, features: [{name: user}], label: click}
model: lr
train: {on_bad_row: dead_letter, dead_letter: {kafka: {brokers: ["%s"], topic: loop}}}
`, t.TempDir(), a.Addrs()[0], letters)), "job.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = job.Run(t.Context(), cfg, job.RunOptions{})
		refused := err != nil && strings.Contains(err.Error(), "train.dead_letter.kafka.topic: is read by the job too (source.kafka.topic)") && strings.Contains(err.Error(), "the cluster one")
		if refused != one || !one && err != nil && errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("one cluster %v: %v", one, err)
		}
		findings, err := job.Check(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(findings); strings.Contains(text, "is read by the job too") != one {
			t.Errorf("one cluster %v: check finds %s", one, text)
		}
	}
}
