package job_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestCheckKnowsWhatWillFail: what train would fail with when it opens its parts, check says before; what it makes by
// itself is no finding; and check leaves no trace.
func TestCheckKnowsWhatWillFail(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: x
source: {text: {files: [DIR/rows.csv]}}
parse:
  format: csv
  header: true
  features: [{name: user, slot: 1}, {name: city, slot: 2}]
  label: click
  joins: [{file: DIR/users.tsv, columns: [user, city], key: user}]
model: lr
`
	for name, tt := range map[string]struct {
		set  []string
		want string // of the finding, empty: none
	}{
		"all is there":              {nil, ""},
		"folders to make":           {[]string{"dir=DIR/new/run", "train.on_bad_row=dead_letter", "train.dead_letter.file=DIR/other/{worker}/bad.jsonl"}, ""},
		"log folder to make":        {[]string{"ps.durability=wal", "ps.wal.dir=DIR/new/wal"}, ""},
		"dir below a file":          {[]string{"dir=DIR/rows.csv/run"}, "dir: DIR/rows.csv is a file"},
		"letters below a file":      {[]string{"train.on_bad_row=dead_letter", "train.dead_letter.file=DIR/rows.csv/bad"}, "train.dead_letter.file.path: DIR/rows.csv is a file"},
		"letters into a folder":     {[]string{"train.on_bad_row=dead_letter", "train.dead_letter.file=DIR"}, "train.dead_letter.file.path: DIR is a folder"},
		"log below a file":          {[]string{"ps.durability=wal", "ps.wal.dir=DIR/rows.csv/wal"}, "ps.wal.dir: DIR/rows.csv is a file"},
		"side table not there":      {[]string{"parse.joins[0].file=DIR/uesrs.tsv"}, "parse.joins: "},
		"limit of few rows":         {[]string{"retention.table_memory=4KiB"}, ": retention.table_memory: is "},
		"limits above all memory":   {[]string{"retention.table_memory=1GiB", "ps.memory=512MiB"}, ": retention.table_memory: lets the rows of 1 tables take "},
		"filters above all memory":  {[]string{"retention.occurrences=2", "retention.admission=hash_filter", "retention.filter_capacity=300000000", "ps.memory=512MiB"}, ": retention.filter_capacity: makes the filters of 1 tables 9"},
		"limits that fit":           {[]string{"retention.table_memory=256MiB", "retention.when_full=refuse", "ps.memory=512MiB"}, ""},
		"label of no header":        {[]string{"parse.label=klick"}, `source.text: text/rows.csv: csv has no column "klick", did you mean "click"?`},
		"holdout of no header":      {[]string{"eval.holdout={by: usr, share: 0.5}"}, `source.text: text/rows.csv: csv has no column "usr", did you mean "user"?`},
		"secret of shards not set":  {[]string{"ps.addresses=127.0.0.1:7000", "ps.token={env: NO_SUCH_VARIABLE_IS_SET}"}, "ps: "},
		"secret of letters not set": {[]string{"train.on_bad_row=dead_letter", "train.dead_letter.kafka={brokers: [h:1], topic: t, sasl: {mechanism: plain, user: u, password: {file: DIR/none}}}"}, "train.dead_letter.kafka.sasl: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"rows.csv": "user,click\n1,1\n", "users.tsv": "1\trome\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set := []string{"dir=" + dir + "/run"}
			for _, s := range tt.set {
				set = append(set, strings.ReplaceAll(s, "DIR", dir))
			}
			cfg, err := job.Decode([]byte(strings.ReplaceAll(text, "DIR", dir)), "x.yaml", job.LoadOptions{Set: set})
			if err != nil {
				t.Fatal(err)
			}
			findings, err := job.Check(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, f.Path+": "+f.Message)
			}
			switch want := strings.ReplaceAll(tt.want, "DIR", dir); {
			case want == "" && len(got) > 0, want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)):
				t.Errorf("findings %q, want %q", got, want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("check has made something: %v, %v", left, err)
			}
			// What check finds no fault with runs, and the other way round.
			if cfg.PS.Addresses != nil {
				return
			}
			if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); (err == nil) != (tt.want == "") {
				t.Errorf("train: %v", err)
			}
		})
	}
}

// TestCheckKnowsFilesThatAreNoParquet: what training ends at as it begins is a finding, unless the job leaves out what cannot be read.
func TestCheckKnowsFilesThatAreNoParquet(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: x
source: {parquet: {files: [DIR/*.parquet]}}
parse: {features: [{name: user, slot: 1}], label: click}
model: lr
`
	for file, want := range map[string][2]string{ // under fail and skip
		"":                            {"end without a Parquet footer", "end without a Parquet footer"},
		"PAR1 and more, and no end":   {"end without a Parquet footer", "end without a Parquet footer"},
		"user,click\n1,1\n2,0\n3,1\n": {`malformed parquet file: ends with "3,1\n", not with PAR1`, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.parquet"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		for policy, want := range map[string]string{"fail": want[0], "skip": want[1]} {
			cfg, err := job.Decode([]byte(strings.ReplaceAll(text, "DIR", dir)), "x.yaml", job.LoadOptions{Set: []string{"dir=" + dir + "/run", "train.on_bad_row=" + policy}})
			if err != nil {
				t.Fatal(err)
			}
			found, err := job.Check(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case want == "" && len(found) > 0:
				t.Errorf("%s: %v", policy, found)
			case want != "" && (len(found) != 1 || found[0].Path != "source.parquet" && found[0].Path != "source.parquet.files" || !strings.Contains(found[0].Message, want) || !strings.Contains(found[0].Message, "a.parquet")):
				t.Errorf("%s: %v, want %q", policy, found, want)
			}
		}
	}
}

// TestInspectTellsOfHeaders: the columns of a file are those that its first line names, and a name that it gives twice is reported
// once, however many blocks there are.
func TestInspectTellsOfHeaders(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct {
		columns []string
		notes   int
	}{
		"user,item,click": {[]string{"user", "item", "click"}, 0},
		"user,item,user":  {[]string{"user", "item"}, 1},
	} {
		path := filepath.Join(t.TempDir(), "rows.csv")
		if err := os.WriteFile(path, []byte(header+"\n"+strings.Repeat("1,2,0\n3,4,1\n", 400)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := job.ForTarget(path, job.LoadOptions{Set: []string{"source.text.block_rows=100"}})
		if err != nil {
			t.Fatal(err)
		}
		info, err := job.InspectSource(t.Context(), cfg, job.InspectOptions{Rows: 3})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range info.Columns {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, want.columns) || len(info.Notes) != want.notes {
			t.Errorf("%s: columns %q, notes %q", header, names, info.Notes)
		}
		for _, n := range info.Notes {
			if !strings.Contains(n, `the header names column "user" twice, fields 1 and 3`) {
				t.Error(n)
			}
		}
	}
}

// TestCheckSeesBadRows: check finds files that begin with bad rows alone, and any bad row there where one ends training. A
// sample counts bad rows, and names padding and ids that are read as something else.
func TestCheckSeesBadRows(t *testing.T) {
	t.Parallel()
	const csv = "version: 1\nname: x\nsource: {text: {files: [DIR/rows]}}\nparse: {format: csv, header: true, features: [{name: user, slot: 1}], label: click}\nmodel: lr\n"
	const jsonl = "version: 1\nname: x\nsource: {text: {files: [DIR/rows]}}\nparse: {format: jsonl, features: [{name: user, slot: 1}], label: click}\nmodel: lr\n"
	padded := ""
	for i := range 40 {
		padded += `{"click":1,"user":[3,` + strings.Repeat("0,", i%4) + "0]}\n"
	}
	for name, tt := range map[string]struct {
		text, rows string
		set        []string
		finding    string // of check; empty: none
		bad        int64  // of the sample
		remark     string
	}{
		"good":             {csv, "user,click\n1,1\n2,0\n", nil, "", 0, ""},
		"all are bad":      {csv, "user,click\n-1,1\n-2,0\n", []string{"train.on_bad_row=skip"}, "source.text: all records of rows are bad rows; the first: text/rows position ", 2, ""},
		"one is bad":       {csv, "user,click\n1,1\n2,7\n", nil, "source.text: train.on_bad_row is fail, and rows begins with a bad row: ", 1, ""},
		"one is left out":  {csv, "user,click\n1,1\n2,7\n", []string{"train.on_bad_row=skip"}, "", 1, ""},
		"later ones":       {csv, "user,click\n" + strings.Repeat("1,1\n", 2000) + "2\n2\n", nil, "", 2, ""},
		"text as TFRecord": {strings.Replace(jsonl, "text:", "tfrecord:", 1), `{"user":1,"click":1}` + "\n", nil, "source.tfrecord: all records of rows are bad rows; the first: ", 1, ""},
		"padding":          {jsonl, padded, nil, "", 0, `feature "user": id 0 ends or begins 40 of 40 lists and is trained; if it fills lists up, set ignore: [0]`},
		"padding ignored":  {jsonl, padded, []string{"parse.features[0].ignore=[0]"}, "", 0, ""},
		"ids of floats":    {csv, "user,click\n667.0,1\n667,0\n", []string{"parse.features[0].type=string"}, "", 0, `feature "user": 1 of 2 values are written as 667.0, and with type: string`},
		"dense ids":        {csv, "user,item,click\n667.0,2,1\n668.0,3,0\n", []string{"parse.features=[{name: user, kind: dense}, {name: item, slot: 1}]"}, "", 0, `feature "user" is dense, and all of its 2 values are whole numbers written as 667.0`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "rows"), []byte(tt.rows), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := job.Decode([]byte(strings.ReplaceAll(tt.text, "DIR", dir)), "x.yaml", job.LoadOptions{Set: append(tt.set, "dir="+dir+"/run")})
			if err != nil {
				t.Fatal(err)
			}
			found, err := job.Check(t.Context(), cfg)
			if err != nil || len(found) != min(len(tt.finding), 1) || len(found) > 0 && !strings.HasPrefix(found[0].Path+": "+found[0].Message, tt.finding) {
				t.Errorf("%v, %v, want %q", found, err, tt.finding)
			}
			need, err := job.Need(t.Context(), cfg, job.NeedOptions{Sample: 5000})
			if err != nil {
				t.Fatal(err)
			}
			if need.NumBad() != tt.bad || (tt.bad > 0) != (len(need.BadExamples) > 0) {
				t.Errorf("%+v, want %d bad rows", need, tt.bad)
			}
			if remarks := strings.Join(need.Remarks, "; "); !strings.HasPrefix(remarks, tt.remark) || tt.remark == "" && remarks != "" {
				t.Errorf("remarks %q, want %q", remarks, tt.remark)
			}
		})
	}
}
