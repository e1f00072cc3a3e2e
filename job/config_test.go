package job_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

const movielens = `version: 1
name: movielens
dir: runs/movielens                 # snapshots, logs, events
seed: 7
source: {kafka: {brokers: [localhost:9092], topic: ratings}}
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: genres, slot: 7, max: 6, combiner: mean}
    - {name: age, kind: dense}
  label: {name: rating, positive: ">= 4"}
model: {deepfm: {dim: 16, hidden: [400, 400, 400]}}
train: {batch: 512, workers: 2, prefetch: {lookup: 2, push: 2}, on_bad_row: skip}
optimizer: {dense: {adam: {lr: 0.001}}, sparse: {adagrad: {lr: 0.05}}}
ps: {shards: 2}
snapshot: {every: 5m, keep: 3}
eval: {source: {parquet: {files: [test/*.parquet]}}}
`

func decode(t *testing.T, text string, opts job.LoadOptions) *job.Config {
	t.Helper()
	c, err := job.Decode([]byte(text), "job.yaml", opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDesignExample(t *testing.T) {
	t.Parallel()
	c := decode(t, movielens, job.LoadOptions{})
	if got := c.Source.Name() + " " + c.Model.Name() + " " + c.Optimizer.Sparse.Name() + " " + c.Optimizer.Bias.Name(); got != "kafka deepfm adagrad auto" {
		t.Errorf("choices are %q", got)
	}
	if c.Source.Bounded() || !c.Eval.Source.Bounded() {
		t.Error("a topic without an end counts as bounded, or a file does not")
	}
	if got := c.Eval.Format; got != "columns" {
		t.Errorf("eval.format is %q, want that of Parquet", got)
	}
	if got := time.Duration(c.Snapshot.Every); got != 5*time.Minute {
		t.Errorf("snapshot.every is %v", got)
	}
	op, number, _, ok := c.Parse.Label.Op()
	if op != ">=" || number != 4 || !ok {
		t.Errorf("label is %q %v %v", op, number, ok)
	}
	for positive, want := range map[string]string{
		"== 1e0": `== 1 "" true`, " !=  not  yet ": `!= 0 "not  yet" true`, "==430_1": `== 0 "430_1" true`, "> x": ` 0 "" false`, "== nan": ` 0 "" false`, "==": ` 0 "" false`, "!= 1e999": ` 0 "" false`,
	} {
		op, x, text, ok := spec.Label{Positive: positive}.Op()
		if got := fmt.Sprintf("%s %g %q %t", op, x, text, ok); got != want {
			t.Errorf("%q is %s, want %s", positive, got, want)
		}
	}
	if diff := cmp.Diff([]int{400, 400, 400}, c.Model.Value().(*components.DeepFM).Hidden); diff != "" {
		t.Error(diff)
	}
	if got := *c.Model.Value().(*components.DeepFM).EmbeddingInit.Uniform; got != 0.05 {
		t.Errorf("embedding_init.uniform is %v", got)
	}
	if got := c.Parse.Features[0].Column; got != "user" {
		t.Errorf("column is %q", got)
	}
	if kafka(c).Start.At != "earliest" || kafka(c).MaxBytes != 4<<20 {
		t.Errorf("defaults of the kafka source are %+v", kafka(c))
	}
}

const frappe = `version: 1
source: {text: {files: [train.libfm]}}
parse: {format: libfm, fields: [user, item]}
model: fm
`

func TestShortFormsAndDerived(t *testing.T) {
	t.Parallel()
	c, err := job.Decode([]byte(frappe), "jobs/frappe.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "frappe" || c.Dir != filepath.Join("runs", "frappe") {
		t.Errorf("name %q dir %q", c.Name, c.Dir)
	}
	if len(c.Parse.Features) != 2 || *c.Parse.Features[1].Slot != 2 || c.Parse.Features[1].Name != "item" {
		t.Errorf("features are %+v", c.Parse.Features)
	}
	c = decode(t, "version: 1\nsource: synthetic\nmodel: lr\ndeterministic: true\n", job.LoadOptions{})
	if s, ok := c.Source.Value().(*components.Synthetic); !ok || s.Examples != 200000 || c.Parse.Format != "tf_example" {
		t.Errorf("source is %+v, format %q", c.Source.Value(), c.Parse.Format)
	}
	if p := c.Train.Prefetch; p.Lookup != 0 || p.Push != 0 || p.Parse != 2 {
		t.Errorf("prefetch in deterministic mode is %+v", p)
	}
	c = decode(t, strings.Replace(movielens, `label: {name: rating, positive: ">= 4"}`, "label: rating", 1), job.LoadOptions{})
	if c.Parse.Label.Name != "rating" {
		t.Errorf("label is %+v", c.Parse.Label)
	}
	c = decode(t, strings.Replace(movielens, "label: {name:", "label: {column:", 1), job.LoadOptions{})
	if c.Parse.Label.Name != "rating" {
		t.Errorf("label by its other name is %+v", c.Parse.Label)
	}
}

// TestPrecedence: flag over environment over file over default; lists are replaced; a choice replaces a choice.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	env := []string{"MONOLITH_TRAIN_BATCH=64", "MONOLITH_TRAIN_WORKERS=3", "MONOLITH_SOURCE_KAFKA_BROKERS=a:1,b:2", "PATH=/bin"}
	set := []string{
		"train.batch=32", "model.deepfm.hidden=8,4", "parse.features[1].max=3", "parse.features.2.dim=4",
		"parse.label.positive=>= 3", "optimizer.sparse=sgd", "optimizer.dense.ftrl.lr=0.5", "source.kafka.end={0: 5, 1: 7}",
	}
	c := decode(t, movielens, job.LoadOptions{Set: set, Env: env})
	got := map[string]string{}
	for _, s := range c.Effective() {
		got[s.Path] = s.Value + " | " + s.From + " | " + s.Where
	}
	for path, want := range map[string]string{
		"train.batch":                "32 | flag | --set train.batch",
		"train.workers":              "3 | env | MONOLITH_TRAIN_WORKERS",
		"train.on_bad_row":           "skip | file | job.yaml:14:77",
		"train.max_examples":         "0 | default | ",
		"source.kafka.brokers":       `["a:1", "b:2"] | env | MONOLITH_SOURCE_KAFKA_BROKERS`,
		"source.kafka.end":           "{0: 5, 1: 7} | flag | --set source.kafka.end",
		"model.deepfm.hidden":        "[8, 4] | flag | --set model.deepfm.hidden",
		"model.deepfm.dim":           "16 | file | job.yaml:13:23",
		"parse.features[1].max":      "3 | flag | --set parse.features.1.max",
		"parse.features[1].combiner": "mean | file | job.yaml:10:49",
		"parse.features[2].dim":      "4 | flag | --set parse.features.2.dim",
		"parse.label.positive":       `">= 3" | flag | --set parse.label.positive`,
		"optimizer.sparse.sgd.lr":    "0.01 | default | ",
		"optimizer.dense.ftrl.lr":    "0.5 | flag | --set optimizer.dense.ftrl.lr",
		"seed":                       "7 | file | job.yaml:4:7",
	} {
		if strings.HasPrefix(path, "parse.features[1].max") {
			want = strings.Replace(want, "features.1", "features[1]", 1)
		}
		if got[path] != want {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
	}
	if c.Optimizer.Sparse.Name() == "adagrad" || c.Optimizer.Dense.Name() == "adam" {
		t.Error("the choices of the file are still there")
	}
	if _, ok := got["optimizer.dense.adam.lr"]; ok {
		t.Error("print-config shows what was not chosen")
	}
	c = decode(t, "version: 1\nsource: synthetic\nmodel: deepfm\n", job.LoadOptions{
		Set: []string{"model.fm.dim=3"}, Env: []string{"MONOLITH_MODEL=lr", "MONOLITH_SEED=99"},
	})
	if m, ok := c.Model.Value().(*components.FM); !ok || m.Dim != 3 || c.Seed != 99 {
		t.Errorf("model %q %+v seed %d", c.Model.Name(), c.Model.Value(), c.Seed)
	}
	c = decode(t, "version: 1\nsource: synthetic\nmodel: deepfm\n", job.LoadOptions{Set: []string{"model.deepfm.dim=3"}})
	if m, ok := c.Model.Value().(*components.DeepFM); !ok || m.Dim != 3 {
		t.Errorf("a key beside a short form: %+v", c.Model)
	}
}

func TestUnknownEnvironmentIsNoted(t *testing.T) {
	t.Parallel()
	c := decode(t, frappe, job.LoadOptions{Env: []string{"MONOLITH_TRAIN_BACTH=1", "MONOLITH_DATA=/x", "MONOLITH_REQUIRE=kafka"}})
	want := []string{"environment variable MONOLITH_TRAIN_BACTH sets nothing; did you mean MONOLITH_TRAIN_BATCH?"}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	edit := func(old, replacement string) string {
		if !strings.Contains(movielens, old) {
			t.Fatalf("no %q in the job", old)
		}
		return strings.Replace(movielens, old, replacement, 1)
	}
	for _, tt := range []struct {
		name, text string
		set        []string
		want       []string
	}{
		{"schedule without examples", movielens, []string{"train.schedule.kind=cosine"}, []string{"--set train.schedule.kind: train.schedule.over: is missing; say over how many examples cosine goes"}},
		{"a name with a slash", movielens, []string{"name=my job/1"}, []string{`--set name: name: is "my job/1"; the job's folder is runs/NAME, so a name has no / and no \, and is not . or ..: choose another, and set dir where the folder is to be elsewhere`}},
		{"a name that goes up", movielens, []string{"name=../../x"}, []string{`--set name: name: is "../../x"; the job's folder is runs/NAME, so a name has no / and no \, and is not . or ..: choose another, and set dir where the folder is to be elsewhere`}},
		{"a name that is the folder above", movielens, []string{"name=.."}, []string{`--set name: name: is ".."; the job's folder is runs/NAME, so a name has no / and no \, and is not . or ..: choose another, and set dir where the folder is to be elsewhere`}},
		{"two models", movielens, []string{"model.deepfm.dim=8", "model.fm.dim=3"}, []string{"--set model.fm.dim: model.fm: contradicts --set model.deepfm.dim: model is either deepfm or fm; leave out one of them"}},
		{"first entries", movielens, []string{"parse.features=[{name: a, slot: 1}, {name: b, slot: 2, combiner: first}, {name: c, slot: 3, combiner: first, max: 2, attends: a}]"}, []string{
			"--set parse.features: parse.features[1].max: is missing; combiner: first puts so many side by side",
			"--set parse.features: parse.features[2].combiner: is first, but its entries are pooled by attention; leave out combiner or attends",
		}},
		{"ends of lists", movielens, []string{"parse.features=[{name: a, slot: 1, keep: last}, {name: b, kind: dense, keep: first}, {name: c, slot: 2, max: 3, keep: newest}]"}, []string{
			`--set parse.features: parse.features[2].keep: is "newest", not one of first, last`,
			"--set parse.features: parse.features[0].keep: is last, but max is 0, which keeps all values; set max too",
			"--set parse.features: parse.features[1].keep: is for sparse features",
		}},
		{"folders in stores", movielens, []string{"dir=s3:/bucket/run", "predict.to={jsonl: 'gs://bucket/scores'}"}, []string{
			"--set dir: dir: is the URL of a store, and a job writes to this machine: name a folder, and set snapshot.upload, by which snapshots are copied to a store",
			"--set predict.to: predict.to.jsonl.dir: is the URL of a store: files are written to a folder of this machine, from which other tools may copy them, or to a topic (kafka)",
		}},
		{"compressors of another kind", movielens, []string{"optimizer.compress.amplitude=0.1", "optimizer.compress.kind=fixed_r8", "optimizer.compress.range=0.5"}, []string{
			"--set optimizer.compress.amplitude: optimizer.compress.amplitude: is of one_bit, and optimizer.compress.kind is fixed_r8",
		}},
		{"schedules of single rules", movielens, []string{"optimizer.schedules.dense.cycle=true", "optimizer.schedules.sparse.kind=polynomial", "optimizer.schedules.bias.over=3", "optimizer.clip.bias=-1"}, []string{
			"--set optimizer.clip.bias: optimizer.clip.bias: is -1, must be at least 0",
			"--set optimizer.schedules.dense.cycle: optimizer.schedules.dense.cycle: is of polynomial and cosine, and optimizer.schedules.dense.kind is constant",
			"--set optimizer.schedules.sparse.kind: optimizer.schedules.sparse.over: is missing; say over how many examples polynomial goes",
			"--set optimizer.schedules.bias.over: optimizer.schedules.bias.over: is set, but optimizer.schedules.bias.kind is constant; say how the rates change: polynomial, exponential or cosine",
		}},
		{"delays that there are none of", movielens, []string{"train.workers=1", "deterministic=true", "optimizer.delay_compensation.sparse=0.04"}, []string{
			"--set optimizer.delay_compensation.sparse: optimizer.delay_compensation: makes up for updates of other workers, which deterministic mode has none of; leave it out",
		}},
		{"delays of layers that there are none of", movielens, []string{"train.workers=1", "deterministic=true", "optimizer.delay_compensation.dense=0.04"}, []string{
			"--set optimizer.delay_compensation.dense: optimizer.delay_compensation: makes up for updates of other workers, which deterministic mode has none of; leave it out",
		}},
		{"delays that would be rounding", movielens, []string{"ps.precision=bf16", "optimizer.delay_compensation.bias=0.04"}, []string{
			"--set optimizer.delay_compensation.bias: optimizer.delay_compensation: is by how much a row differs from what a worker was given, which is rounded by ps.precision: bf16; leave out one of them",
		}},
		{"schedule of nothing", movielens, []string{"train.schedule.over=5", "train.schedule.cycle=true", "train.schedule.staircase=true"}, []string{
			"--set train.schedule.over: train.schedule.over: is set, but train.schedule.kind is constant; say how the rates change: polynomial, exponential or cosine",
			"--set train.schedule.staircase: train.schedule.staircase: is of exponential, and train.schedule.kind is constant",
			"--set train.schedule.cycle: train.schedule.cycle: is of polynomial and cosine, and train.schedule.kind is constant",
		}},
		{"schedule out of range", movielens, []string{"train.schedule.kind=linear", "train.schedule.over=1", "train.schedule.warm_up=-1", "train.schedule.end=1.5", "train.schedule.power=0", "train.schedule.rate=0"}, []string{
			`--set train.schedule.kind: train.schedule.kind: is "linear", not one of constant, polynomial, exponential, cosine`,
			"--set train.schedule.warm_up: train.schedule.warm_up: is -1, must be at least 0",
			"--set train.schedule.end: train.schedule.end: is 1.5, must be at most 1",
			"--set train.schedule.power: train.schedule.power: is 0, must be above 0",
			"--set train.schedule.rate: train.schedule.rate: is 0, must be above 0",
		}},
		{"standby of shard 0 without a witness", movielens, []string{"ps={addresses: ['a:1', 'b:1'], standby: {addresses: ['a:2', 'b:2']}, durability: wal}"}, []string{
			"--set ps: ps.standby.addresses[0]: is the standby of shard 0, and no shard decides which of the two is in charge; that takes a shard without a standby: add one to ps.addresses, or leave one \"\" in ps.standby.addresses",
		}},
		{"standby of shard 0 with uploads", movielens, []string{"ps={addresses: ['a:1', 'b:1'], standby: {addresses: ['a:2']}, durability: wal}", "snapshot.upload=s3://bucket/run"}, []string{
			"--set snapshot.upload: snapshot.upload: is not there for a job whose shard 0 has a standby: one process uploads; leave one of the two out, or copy dir/snapshots by other means",
		}},
		{"number of a snapshot", movielens, []string{"snapshot.exempt=[3, 0]"}, []string{"--set snapshot.exempt: snapshot.exempt[1]: is 0; snapshots are numbered from 1: 12 is snap-00000012"}},
		{"unknown key", edit("batch: 512", "btach: 512"), nil, []string{`job.yaml:14:9: train.btach: unknown key; did you mean "batch"?`}},
		{"misspelt section", edit("source: {kafka", "sorce: {kafka"), nil, []string{`job.yaml:5:1: sorce: unknown key; did you mean "source"?`}},
		{"unknown key far from any", edit("keep: 3", "zzzzzzzz: 3"), nil, []string{"job.yaml:17:23: snapshot.zzzzzzzz: unknown key; known here: every, keep, keep_for, exempt, incremental, tolerate, upload, upload_keep, upload_wait"}},
		{"unknown model", edit("model: {deepfm: {dim: 16, hidden: [400, 400, 400]}}", "model: depfm"), nil, []string{`job.yaml:13:8: model: "depfm" is none of lr, fm, fwfm, ffm, wide_deep, deepfm, nfm, afm, dcn, dcnv2, xdeepfm, autoint, fibinet, dlrm, masknet, finalmlp, dssm, wukong, shared_bottom, mmoe, ple, esmm, snr, dbmtl, pepnet, rankmixer, din, dien, hstu, graph; did you mean "deepfm"?`}},
		{"unknown model far from any", edit("model: {deepfm: {dim: 16, hidden: [400, 400, 400]}}", "model: {transformer: {}}"), nil, []string{
			`job.yaml:13:9: model: "transformer" is none of lr, fm, fwfm, ffm, wide_deep, deepfm, nfm, afm, dcn, dcnv2, xdeepfm, autoint, fibinet, dlrm, masknet, finalmlp, dssm, wukong, shared_bottom, mmoe, ple, esmm, snr, dbmtl, pepnet, rankmixer, din, dien, hstu, graph`,
		}},
		{"a key of another section", edit("seed: 7", "batch: 7"), nil, []string{`job.yaml:4:1: batch: unknown key; did you mean "train.batch"?`}},
		{"a key of the outermost section", movielens, []string{"train.epochs=2"}, []string{"--set train.epochs: train.epochs: unknown key here; there is epochs, backfill.epochs"}},
		{"a key of several sections", edit("seed: 7", "hidden: 7"), nil, []string{"job.yaml:4:1: hidden: unknown key here; there is model.wide_deep.hidden, model.deepfm.hidden, model.nfm.hidden and 20 others"}},
		{"condition without quotes", edit(`positive: ">= 4"`, "positive: >= 4"), nil, []string{
			`job.yaml:12:35: not YAML: found character that cannot start any token; write a condition in quotes: ">= 4"`,
		}},
		{"unequal without quotes", edit(`positive: ">= 4"`, "positive: != 0"), nil, []string{`job.yaml:12:35: parse.label.positive: tags such as != are not used in jobs; write a condition in quotes: "!= 0"`}},
		{"enum", edit("on_bad_row: skip", "on_bad_row: skp"), nil, []string{`job.yaml:14:77: train.on_bad_row: is "skp", not one of fail, skip, dead_letter; did you mean "skip"?`}},
		{"number", edit("batch: 512", "batch: many"), nil, []string{`job.yaml:14:16: train.batch: wants a whole number, not "many"`}},
		{"quoted number", edit("batch: 512", `batch: "512"`), nil, []string{`job.yaml:14:16: train.batch: wants a whole number, not "512"`}},
		{"range", edit("batch: 512", "batch: 0"), nil, []string{"job.yaml:14:16: train.batch: is 0, must be at least 1"}},
		{"duration without a unit", edit("every: 5m", "every: 5"), nil, []string{"job.yaml:17:19: snapshot.every: 5 has no unit; write 5s, 5m or 5ms"}},
		{"negative duration", edit("every: 5m", "every: -5m"), nil, []string{"job.yaml:17:19: snapshot.every: is -5m0s, must be at least 0s"}},
		{"two choices", edit("model: {deepfm:", "model: {lr: {}, deepfm:"), nil, []string{"job.yaml:13:17: model: takes one of its keys, not lr and deepfm"}},
		{"fm of one value", "version: 1\nsource: {text: {files: [a.csv]}}\nparse: {format: csv, columns: [y, id], features: [{name: id, slot: 1}], label: y}\nmodel: fm\n", nil, []string{
			"job.yaml:4:8: model.fm: has one feature with one value a row, so no two vectors meet and the model is logistic regression; add features, split its values (split), or choose lr",
		}},
		{"fm of one field", "version: 1\nsource: {text: {files: [a.libfm]}}\nparse: {format: libfm}\nmodel: {fm: {interactions: fields}}\n", nil, []string{
			"job.yaml:4:28: model.fm.interactions: is fields, but there is one feature, so nothing meets and the model is logistic regression; set it to entries, or choose lr",
		}},
		{"twice", edit("seed: 7\n", "seed: 7\nseed: 8\n"), nil, []string{"job.yaml:5:1: seed: is given twice, first at line 4"}},
		{"section expected", edit("ps: {shards: 2}", "ps: 2"), nil, []string{`job.yaml:16:5: ps: wants keys and values, not "2"`}},
		{"list expected", edit("brokers: [localhost:9092]", "brokers: localhost:9092"), nil, []string{`job.yaml:5:27: source.kafka.brokers: wants a list, not "localhost:9092"`}},
		{"no value", edit("topic: ratings", "topic: "), nil, []string{"job.yaml:5:52: source.kafka.topic: has no value"}},
		{"missing", edit(", topic: ratings", ""), nil, []string{"job.yaml:5:17: source.kafka.topic: is missing"}},
		{"no version", edit("version: 1\n", ""), nil, []string{"job.yaml: version: is missing"}},
		{"other version", edit("version: 1\n", "version: 2\n"), nil, []string{"job.yaml:1:10: version: is 2, and this program reads version 1"}},
		{"not YAML", "version: 1\nname: [a\n", nil, []string{"job.yaml:3:1: not YAML: did not find expected ',' or ']' while parsing a flow sequence from 2:7 on"}},
		{"tab", "version: 1\nname: x\nsource:\n\ttext: y\n", nil, []string{"job.yaml:4:1: the line begins with a tab; YAML indents with spaces"}},
		{"empty", "# nothing\n", nil, []string{"job.yaml: is empty; a job begins with `version: 1`"}},
		{"list at the top", "- 1\n", nil, []string{"job.yaml:1:1: wants keys and values, not a list"}},
		{"several documents", movielens + "---\nversion: 1\n", nil, []string{"job.yaml:20:1: a job is one YAML document; this begins another"}},
		{"flag unknown", movielens, []string{"trian.batch=3"}, []string{`--set trian.batch: trian: unknown key; did you mean "train"?`}},
		{"flag malformed", movielens, []string{"train.batch"}, []string{"--set train.batch: wants key.path=value"}},
		{"flag list index", movielens, []string{"parse.features[9].slot=3"}, []string{`--set parse.features[9].slot: parse.features: has no element "9"; it has 3`}},
		{"flag value", movielens, []string{"train.batch=x"}, []string{`--set train.batch: train.batch: wants a whole number, not "x"`}},
		{"repeated feature", edit("name: genres", "name: user"), nil, []string{`job.yaml:10:14: parse.features[1].name: is "user", which is already the name of parse.features[0]`}},
		{"slot missing", edit("{name: user, slot: 1}", "{name: user}"), nil, []string{"job.yaml:9:7: parse.features[0].slot: is missing; other features name theirs"}},
		{"slot too large", edit("slot: 7", "slot: 32768"), nil, []string{"job.yaml:10:28: parse.features[1].slot: is 32768, must be at most 32767"}},
		{"label form", edit(">= 4", "=> 4"), nil, []string{`job.yaml:12:35: parse.label.positive: is "=> 4", not an operator and a number such as ">= 4", nor a text that is compared, as in "== yes"`}},
		{"label text", edit(">= 4", ">= yes"), nil, []string{`job.yaml:12:35: parse.label.positive: is ">= yes", not an operator and a number such as ">= 4", nor a text that is compared, as in "== yes"`}},
		{"label infinity", edit(">= 4", "== inf"), nil, []string{`job.yaml:12:35: parse.label.positive: is "== inf", not an operator and a number such as ">= 4", nor a text that is compared, as in "== yes"`}},
		{"format of source", edit("format: tf_example", "format: columns"), nil, []string{`job.yaml:7:11: parse.format: is "columns", but records of a kafka source are one of tf_example, libfm, csv, tsv, jsonl`}},
		{"broker", edit("localhost:9092", "localhost"), nil, []string{`job.yaml:5:28: source.kafka.brokers[0]: is "localhost", not host:port`}},
		{"epochs of a stream", edit("seed: 7", "epochs: 3"), nil, []string{"job.yaml:4:9: epochs: is 3, but the source never ends"}},
		{"deterministic", edit("seed: 7", "deterministic: true"), nil, []string{
			"job.yaml:14:30: train.workers: is 2, but deterministic mode needs 1",
		}},
		{"dead letters nowhere", edit("on_bad_row: skip", "on_bad_row: dead_letter"), nil, []string{"job.yaml:14:8: train.dead_letter: is missing; say where bad rows go"}},
		{"secret in the job", edit("topic: ratings", "topic: ratings, sasl: {mechanism: plain, user: u, password: hunter2}"), nil, []string{
			"job.yaml:5:105: source.kafka.sasl.password: a secret may not be in a job; write {env: VARIABLE} or {file: PATH}",
		}},
		{"rows that look-ups ahead cannot know", edit("ps: {shards: 2}", "retention: {expire: 720h}\nps: {shards: 2}"), []string{"train.prefetch.lookup=2"}, []string{
			"--set train.prefetch.lookup: train.prefetch.lookup: looks rows up before the batches in front are applied, and cannot know which ids get or lose a row by them (retention); set it to 0",
		}},
		{"rules for nothing", edit("ps: {shards: 2}", "retention: {admission: linear, when_full: refuse, max_jump: 1h, max_step: 1m}\nps: {shards: 2}"), nil, []string{
			"job.yaml:16:24: retention.admission: says how ids wait for a row, but none does; set retention.occurrences",
			"job.yaml:16:43: retention.when_full: says what happens at a limit, but there is none; set retention.table_memory",
			"job.yaml:16:61: retention.max_jump: guards the time that rows expire by, but none does; set retention.expire",
			"job.yaml:16:75: retention.max_step: bounds the steps of the time that rows expire by, but none does; set retention.expire",
		}},
		{"a step that bounds nothing", edit("ps: {shards: 2}", "retention: {expire: 6h, max_step: 6h, features: [{name: genres, expire: 1h}]}\nps: {shards: 2}"), []string{"train.prefetch.lookup=0", "train.prefetch.push=0"}, []string{
			"job.yaml:16:35: retention.max_step: is 6h0m0s, and rows expire after 6h0m0s, so one step may still remove them all; set a hundredth of retention.expire or less",
		}},
		{"a step below what times tell", edit("ps: {shards: 2}", "retention: {expire: 6h, max_step: 10ns}\nps: {shards: 2}"), []string{"train.prefetch.lookup=0", "train.prefetch.push=0"}, []string{
			"job.yaml:16:35: retention.max_step: is 10ns, and event times are in microseconds; set 1us or more",
		}},
		{"filters for nothing", edit("ps: {shards: 2}", "retention: {occurrences: 3, filter_splits: 5, filter_capacity: 5000}\nps: {shards: 2}"), []string{"train.prefetch.lookup=0", "train.prefetch.push=0"}, []string{
			"job.yaml:16:64: retention.filter_capacity: is the size of a hash filter, and no id is counted by one; set retention.admission to hash_filter or sliding_hash_filter, and retention.occurrences",
			"job.yaml:16:44: retention.filter_splits: is of a sliding hash filter, and no id is counted by one; set retention.admission to sliding_hash_filter, and retention.occurrences",
		}},
		{"filters that count no further", edit("ps: {shards: 2}", "retention: {occurrences: 16, admission: hash_filter, features: [{name: genres, occurrences: 20}]}\nps: {shards: 2}"), []string{"train.prefetch.lookup=0", "train.prefetch.push=0"}, []string{
			"job.yaml:16:26: retention.occurrences: is 16, and a hash_filter counts to 15; ask for less, or set retention.admission to exact",
			"job.yaml:16:93: retention.features[0].occurrences: is 20, and a hash_filter counts to 15; ask for less, or set retention.admission to exact",
		}},
		{"rows of no feature", edit("ps: {shards: 2}", "retention: {occurrences: 3, features: [{name: genre, expire: 24h}]}\nps: {shards: 2}"), nil, []string{
			`job.yaml:16:47: retention.features[0].name: "genre" is no sparse feature; did you mean "genres"?`,
			"job.yaml:14:52: train.prefetch.lookup: looks rows up before the batches in front are applied, and cannot know which ids get or lose a row by them (retention); set it to 0",
		}},
		{"expiry without times", "version: 1\nsource: {text: {files: [a.csv]}}\nparse: {format: csv, columns: [y, id], features: [{name: id, slot: 1}], label: y}\nmodel: lr\nretention: {expire: 24h}\n", nil, []string{
			"job.yaml:5:12: retention: lets rows expire by event time, and the records of a text source have none; leave expire out",
		}},
		{"two rules for one slot", "version: 1\nsource: synthetic\nparse: {features: [{name: user, slot: 1}, {name: item, slot: 1}], label: click}\nmodel: lr\nretention: {features: [{name: user, expire: 24h}, {name: item, occurrences: 2}]}\n", nil, []string{
			"job.yaml:5:58: retention.features[1].name: is a feature of slot 1, which another has other numbers for: ids of one slot share their rows",
		}},
		{"rights of nobody", edit("ps: {shards: 2}", "ps: {allow: {read: {names: [a, '*']}, train: {token: {env: T}, names: [b]}}}"), nil, []string{
			`job.yaml:16:20: ps.allow.read: "*" is no name of a certificate; a * stands only for a first label, as in *.example.org`,
			"job.yaml:16:28: ps.allow.read.names: needs ps.tls.ca: nobody shows a certificate otherwise",
			"job.yaml:16:71: ps.allow.train.names: needs ps.tls.ca: nobody shows a certificate otherwise",
			"job.yaml:16:13: ps.allow.coordinate: is not set, so that shard 0 could not give the other shards their state",
		}},
		{"many at once", strings.NewReplacer("batch: 512", "btach: 512", "keep: 3", "keep: 0", "on_bad_row: skip", "on_bad_row: never").Replace(movielens), nil, []string{
			`job.yaml:14:9: train.btach: unknown key; did you mean "batch"?`,
			`job.yaml:14:77: train.on_bad_row: is "never", not one of fail, skip, dead_letter`,
			"job.yaml:17:29: snapshot.keep: is 0, must be at least 1",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := job.Decode([]byte(tt.text), "job.yaml", job.LoadOptions{Set: tt.set})
			var ce *job.ConfigError
			if !errors.As(err, &ce) || !errors.Is(err, pipeline.ErrConfig) {
				t.Fatalf("error is %v, want a *ConfigError that wraps pipeline.ErrConfig", err)
			}
			var got []string
			for _, f := range ce.Faults {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := func(password string) string {
		return strings.Replace(movielens, "topic: ratings", "topic: ratings, sasl: {mechanism: plain, user: u, password: "+password+"}", 1)
	}
	for _, tt := range []struct {
		name, password string
		env            []string
		want, wantErr  string
	}{
		{"env", "{env: KAFKA_PASSWORD}", []string{"KAFKA_PASSWORD=from env"}, "from env", ""},
		{"file", "{file: " + file + "}", nil, "from file", ""},
		{"override", "{file: /nowhere}", []string{"MONOLITH_SOURCE_KAFKA_SASL_PASSWORD=direct"}, "direct", ""},
		{"unset", "{env: NO_SUCH_VARIABLE_ANYWHERE}", nil, "", "NO_SUCH_VARIABLE_ANYWHERE is not set"},
		{"no file", "{file: /nowhere/at/all}", nil, "", "/nowhere/at/all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := decode(t, text(tt.password), job.LoadOptions{Env: tt.env})
			got, err := kafka(c).SASL.Password.Resolve()
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("resolves to %q, %v", got, err)
			}
			for _, s := range c.Effective() {
				if tt.want != "" && strings.Contains(s.Value, tt.want) {
					t.Errorf("print-config shows the secret at %s", s.Path)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "frappe.yaml")
	if err := os.WriteFile(path, []byte(frappe), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := job.Load(path, job.LoadOptions{}); err != nil || c.Name != "frappe" || c.File() != path {
		t.Errorf("loads as %+v, %v", c, err)
	}
	_, err := job.Load(filepath.Join(dir, "frape.yaml"), job.LoadOptions{})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "frappe.yaml") {
		t.Errorf("a missing file gives %v, want the nearest name", err)
	}
	if _, err := job.Load(dir, job.LoadOptions{}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("a folder gives %v", err)
	}
}

// TestKeys: every key has a path and, outside of lists, an environment variable of its own.
func TestKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	var paths []string
	for _, k := range job.Keys() {
		if k.Env != "" {
			if other, ok := seen[k.Env]; ok {
				t.Errorf("%s sets both %s and %s", k.Env, other, k.Path)
			}
			seen[k.Env] = k.Path
		}
		paths = append(paths, k.Path)
	}
	for _, want := range []string{"version", "source.kafka.sasl.password", "parse.features[].slot", "train.prefetch.push", "model.dcnv2.cross_layers", "optimizer.bias.ftrl.l1"} {
		if !slices.Contains(paths, want) {
			t.Errorf("no key %s", want)
		}
	}
	if seen["MONOLITH_TRAIN_BATCH"] != "train.batch" {
		t.Error("MONOLITH_TRAIN_BATCH does not set train.batch")
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c := job.Default()
	c.Source = job.SourceOf("synthetic", &components.Synthetic{Examples: 10, Splits: 1, BlockRows: 1})
	c.Model = job.ModelOf("lr", &components.LR{})
	c.Parse.Format = "tf_example"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Train.Batch = 0
	if err := c.Validate(); err == nil || err.Error() != "train.batch: is 0, must be at least 1" {
		t.Errorf("error is %v", err)
	}
}

func TestJoins(t *testing.T) {
	t.Parallel()
	text := `version: 1
source: {text: {files: [train.tsv]}}
parse:
  format: tsv
  header: false
  columns: [user, movie, "", rating]
  joins:
    - {file: users.dat, delimiter: "::", columns: [id, gender, "", "", zip], key: user, key_column: id}
    - {file: movies.dat, delimiter: "::", columns: [movie, title, genres], key: movie, encoding: latin1, prefix: m_}
  features:
    - {name: user}
    - {name: zip, hash: hash}
    - {name: genres, column: m_genres, split: "|", regexp: '\w+'}
  label: {name: rating, positive: ">= 4"}
model: lr
`
	c := decode(t, text, job.LoadOptions{})
	if got := c.Parse.Joins[1].KeyColumn; got != "movie" {
		t.Errorf("key_column is %q, want the key's name", got)
	}
	_, err := job.Decode([]byte(strings.NewReplacer("column: m_genres", "column: m_genre", "key: user", "key: usr").Replace(text)), "job.yaml", job.LoadOptions{})
	want := `2 faults in the job:
  job.yaml:8:83: parse.joins[0].key: is "usr", which is no column of the rows; did you mean "user"?
  job.yaml:13:30: parse.features[2].column: is "m_genre", which is no column; did you mean "m_genres"?`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

// TestVariablesAnywhere: a variable may be wherever a value may, in quotes or not, and columns of faults stay true.
func TestVariablesAnywhere(t *testing.T) {
	t.Parallel()
	env := []string{"DIR=/data/a: {b}", "LABEL=click", "N=7"}
	for text, want := range map[string]string{
		"[${DIR}/f.csv]":                             "[/data/a: {b}/f.csv]",
		`["${DIR}/f.csv", '${DIR}', x]`:              "[/data/a: {b}/f.csv /data/a: {b} x]",
		"[${NONE:-a, [b]: c}, d${N}${N}e]":           "[a, [b]: c d77e]",
		"[$${DIR}]":                                  "[${DIR}]",
		"\n    - ${DIR}  # not ${NONE}\n    - é${N}": "[/data/a: {b} é7]",
		"[\"\ue000\", \"${N}\"]":                     "[\ue000 7]", // the characters that hide variables
	} {
		c, err := job.Decode([]byte("version: 1\nsource:\n  text:\n   files: "+text+"\nparse: {format: libfm}\nmodel: lr\n"), "x.yaml", job.LoadOptions{Env: env})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(c.Source.FileList()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	_, err := job.Decode([]byte("version: 1\nname: ${N}${N}, oops: {\nmodel: [${N}, ${NONE}]\n"), "x.yaml", job.LoadOptions{Env: env})
	if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return r >= 0xE000 && r <= 0xF8FF }) {
		t.Errorf("error is %v", err)
	}
	_, err = job.Decode([]byte("version: 1\nsource: {text: {files: [${NONE}, ${N}], blck_rows: 3}}\nparse: {format: libfm}\nmodel: lr\n"), "x.yaml", job.LoadOptions{Env: env})
	want := "2 faults in the job:\n  x.yaml:2:25: source.text.files: environment variable NONE is not set; set it, or write ${NONE:-fallback}\n" +
		`  x.yaml:2:41: source.text.blck_rows: unknown key; did you mean "block_rows"?`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}

	// A variable that is not set is one fault, whatever its key wants; two are two.
	_, err = job.Decode([]byte("version: 1\nsource: {text: {files: [x]}}\nparse: {format: libfm}\nmodel: ${MODEL}\ntrain: {batch: \"${A}${B}${A}\"}\nsnapshot: {every: ${EVERY}}\n"), "x.yaml", job.LoadOptions{Env: env})
	want = "4 faults in the job:\n  x.yaml:4:8: model: environment variable MODEL is not set; set it, or write ${MODEL:-fallback}\n" +
		"  x.yaml:5:16: train.batch: environment variable A is not set; set it, or write ${A:-fallback}\n" +
		"  x.yaml:5:16: train.batch: environment variable B is not set; set it, or write ${B:-fallback}\n" +
		"  x.yaml:6:19: snapshot.every: environment variable EVERY is not set; set it, or write ${EVERY:-fallback}"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

func TestForTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, ".gz") {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(text))
			_ = w.Close()
			text = b.String()
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var records bytes.Buffer
	w := tfrecord.NewWriter(&records, nil)
	if err := errors.Join(w.Write([]byte("{}")), w.Close()); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		write("a.csv", "user,item\n1,2\n3,4\n"):                  "text csv header=true columns=[]",
		write("b.csv", "1,2\n3,4\n"):                             "text csv header=false columns=[c1 c2]",
		write("c", "1\t2\n3\t4\n"):                               "text tsv header=false columns=[c1 c2]",
		write("x-00000-of-00002.gz", "{\"a\": 1}\n{\"b\": 2}\n"): "text jsonl header=false columns=[]",
		write("d.txt", "1 3:1 9:1\n-1 2:0.5\n"):                  "text libfm header=false columns=[]",
		write("e.csv.gz", "user,item\n\"a\nb\",2\n"):             "text csv header=true columns=[]",
		write("f", "all kinds\nof words, here\n"):                "text  header=false columns=[]",
		write("g.part", records.String()):                        "tfrecord  header=false columns=[]",
		write("h.gz", records.String()):                          "tfrecord  header=false columns=[]",
		write("i", "PAR1..."):                                    "parquet columns header=false columns=[]",
		write("j.tfrecord", "damaged from its first byte on"):    "tfrecord  header=false columns=[]",
		filepath.Join(dir, "a*.csv"):                             "text csv header=true columns=[]",
		"kafka://h:1,i:2/t":                                      "kafka  header=false columns=[]",
		"synthetic":                                              "synthetic tf_example header=false columns=[]",
	} {
		c, err := job.ForTarget(target, job.LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if got := fmt.Sprintf("%s %s header=%v columns=%v", c.Source.Name(), c.Parse.Format, c.Parse.Header, c.Parse.Columns); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	c, err := job.ForTarget("kafka://h:1,i:2/t", job.LoadOptions{Set: []string{"source.kafka.tls={}", "parse.format=jsonl"}})
	if err != nil || len(kafka(c).Brokers) != 2 || c.Source.Bounded() || kafka(c).TLS == nil || c.Parse.Format != "jsonl" {
		t.Errorf("kafka target: %+v, %v", c, err)
	}
	for target, want := range map[string]string{
		"what":             "no file matches",
		dir:                "/*",
		"kafka://h:1":      "is not kafka://host:port/topic",
		write("empty", ""): "nothing in it",
		write("long.csv", strings.Repeat("column,", 1<<16)+"end\n1,2\n"): "its first line has no end within 262144 bytes",
		filepath.Join(dir, "a.csv.bak"):                                  "a.csv",
	} {
		if _, err := job.ForTarget(target, job.LoadOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", target, err, want)
		}
	}
}

func TestDurationsAndSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]job.Size{"4096": 4096, "64KiB": 64 << 10, "4mib": 4 << 20, "1GB": 1e9, "12 B": 12, "0": 0} {
		var s job.Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%q is %d, %v", in, s, err)
		}
		var again job.Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%q renders as %q, which reads as %d, %v", in, s, again, err)
		}
	}
	for _, in := range []string{"", "MiB", "x", "1.5MiB", "9223372036854775807GiB", "1TiB"} {
		var s job.Size
		if err := s.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q is read as %d", in, s)
		}
	}
}

// FuzzDecode: no input panics or takes long, whatever loads also passes Validate, and print-config of it does not fail.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{movielens, frappe, fmt.Sprintf(graphJob, "run", blocksModel), "version: 1\nsource: synthetic\nmodel: &m lr\nname: *m\n", "a: {b: [1, {c: 2}]}", "<<: *x", "!!int 3", "? a\n: b", strings.Repeat("- ", 100), strings.Repeat("[", 100)} {
		f.Add([]byte(s), "train.batch=3")
		f.Add([]byte(s), "parse.features[0].slot={a: b}")
	}
	f.Fuzz(func(t *testing.T, data []byte, set string) {
		c, err := job.Decode(data, "f", job.LoadOptions{Set: []string{set}, Env: []string{"MONOLITH_" + set}})
		if err != nil {
			if !errors.Is(err, pipeline.ErrConfig) || err.Error() == "" {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if len(c.Effective()) == 0 {
			t.Fatal("nothing is in force")
		}
	})
}

func TestVariablesInValues(t *testing.T) {
	text := "version: 1\nsource: {text: {files: ['${DATA}/a-${N:-7}.csv', '$${DATA}']}}\nmodel: lr\nparse: {format: csv, header: true, label: y, features: [{name: x}]}\nname: ${NOBODY_SET_THIS}\n"
	_, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Env: []string{"DATA=/d: [1]"}})
	if err == nil || !strings.Contains(err.Error(), "job.yaml:5:7") || !strings.Contains(err.Error(), "NOBODY_SET_THIS is not set") {
		t.Errorf("an unset variable: %v", err)
	}
	c, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Env: []string{"DATA=/d: [1]", "NOBODY_SET_THIS=n"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Source.FileList(); len(got) != 2 || got[0] != "/d: [1]/a-7.csv" || got[1] != "${DATA}" || c.Name != "n" {
		t.Errorf("files %q, name %q", got, c.Name)
	}
}

func kafka(c *job.Config) *components.Kafka { return c.Source.Value().(*components.Kafka) }

// TestHeldOutFilesAreTrainedOn: who evaluates on files that the source reads too is warned, by paths and patterns as they are written.
// TestOneRecordThatExpiresAll: where one record may let all rows expire, a warning says so.
func TestOneRecordThatExpiresAll(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"{table_memory: 1GiB}":                     "",
		"{expire: 24h30m}":                         "",
		"{expire: 6h}":                             "retention.max_jump is 24h0m0s and rows expire after 6h0m0s",
		"{expire: 48h, max_jump: 0s}":              "retention.max_jump is 0s and rows expire after 48h0m0s",
		"{expire: 6h, max_jump: 1h}":               "",
		"{expire: 6h, max_jump: 0s, max_step: 1m}": "",
		"{expire: 6h, max_step: 2h, features: [{name: user, expire: 1h}]}": "retention.max_step is 2h0m0s and rows of a feature expire after 1h0m0s",
		"{features: [{name: user, expire: 1h}]}":                           "retention.max_jump is 24h0m0s and rows expire after 1h0m0s",
	} {
		c := decode(t, "version: 1\nsource: synthetic\nparse: {features: [{name: user}, {name: item}], label: click}\nmodel: lr\nretention: "+rules+"\n",
			job.LoadOptions{})
		got := strings.Join(c.Warnings(), "\n")
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
}

func TestHeldOutFilesAreTrainedOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		source, eval string
		want         int
	}{
		{"[a.csv]", "[b.csv]", 0},
		{"[a.csv]", "[a.csv]", 1},
		{"[a.csv]", "[./a.csv]", 1},
		{"[day/*.csv]", "[day/7.csv, other/7.csv]", 1},
		{"[day/7.csv]", "['day/*.csv']", 1},
		{"['day/*.csv']", "['day/*.csv', day/1.csv]", 2},
		{"['day/[.csv']", "['day/1.csv']", 0}, // no pattern at all
		{"['day/*.csv']", "['day/1/2.csv']", 0},
	} {
		c := decode(t, fmt.Sprintf(`
version: 1
source: {text: {files: %s}}
parse: {format: csv, header: true, features: [{name: user}], label: click}
model: lr
eval: {source: {text: {files: %s}}}
`, tt.source, tt.eval), job.LoadOptions{})
		got := c.Warnings()
		if len(got) != tt.want || len(got) > 0 && !strings.Contains(got[0], "eval.source reads") {
			t.Errorf("%s and %s: %q, want %d", tt.source, tt.eval, got, tt.want)
		}
	}
}
