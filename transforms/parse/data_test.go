package parse_test

import (
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

func readGzip(t *testing.T, path ...string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// total counts what a whole data set became.
type total struct {
	rows, positive int
	ids            map[string]int // distinct fids of each sparse feature
	misses         joinMisses
}

// parseAll runs all lines of a file through a stage in blocks, failing at the first bad row.
func parseAll(t *testing.T, opts parse.Options, header string, records [][]byte) total {
	t.Helper()
	stage := parse.New(opts)
	out := total{ids: map[string]int{}, misses: joinMisses{}}
	p, err := stage.Open(t.Context(), &pipeline.Env{Hooks: pipeline.NewHooks(out.misses)})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for chunk := range slices.Chunk(records, 4096) {
		if err := p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, header, chunk...), func(b *pipeline.Batch) error {
			defer b.Release()
			out.rows += b.NumRows()
			for _, y := range b.Column(pipeline.ColLabel).(*array.Float32).Float32Values() {
				if y == 1 {
					out.positive++
				}
			}
			for i, f := range b.Record().Schema().Fields() {
				list, ok := b.Record().Column(i).(*array.List)
				if !ok {
					continue
				}
				for _, id := range list.ListValues().(*array.Int64).Int64Values() {
					if !seen[id] {
						seen[id] = true
						out.ids[f.Name]++
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Counts of rows and positives: zcat | awk; of ids: feature_map.tsv and README of the data set, or awk | sort -u.
func TestRealData(t *testing.T) {
	t.Parallel()
	t.Run("frappe", func(t *testing.T) {
		t.Parallel()
		dir := testbed.Data(t, "datasets/frappe")
		opts := parse.Options{
			Format: parse.LibFM,
			Fields: []string{"user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"},
		}
		got := parseAll(t, opts, "", lines(string(readGzip(t, dir, "frappe.validation.libfm.gz"))))
		if got.rows != 57722 || got.positive != 19063 || got.ids["daytime"] != 7 || got.ids["weekday"] != 7 || got.ids["isweekend"] != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("criteo8k", func(t *testing.T) {
		t.Parallel()
		dir := testbed.Data(t, "datasets/criteo8k")
		got := parseAll(t, criteo(), "", lines(string(readGzip(t, dir, "train.tsv.gz"))))
		if got.rows != 7200 || got.positive != 1549 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("ml1m", func(t *testing.T) {
		t.Parallel()
		dir := testbed.Data(t, "datasets/ml1m-bin")
		opts := movieLens(filepath.Join(dir, "users.dat"), filepath.Join(dir, "movies.dat"))
		opts.Columns = nil // the file has a header
		records := lines(string(readGzip(t, dir, "val.tsv.gz")))
		got := parseAll(t, opts, string(records[0]), records[1:])
		if got.rows != 23636 || got.positive != 12528 || got.ids["gender"] != 2 || got.ids["genres"] != 18 {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff(joinMisses{}, got.misses); diff != "" {
			t.Errorf("misses: %s", diff)
		}
	})
}

func criteo() parse.Options {
	opts := parse.Options{Format: parse.TSV, Columns: []string{"label"}, Labels: []parse.Label{{Column: "label"}}}
	for i := range 39 {
		f := parse.Feature{Name: fmt.Sprintf("C%d", i-12), Slot: i + 1}
		if i < 13 {
			f.Name, f.Type = fmt.Sprintf("I%d", i+1), parse.Float
		}
		opts.Columns = append(opts.Columns, f.Name)
		opts.Features = append(opts.Features, f)
	}
	return opts
}

// The same trips are in a csv file and, as tf.Example, in TFRecord files: both must become the same rows.
func TestChicagoTaxi(t *testing.T) {
	t.Parallel()
	dir := testbed.Data(t, "datasets/chicago_taxi")
	shards, err := filepath.Glob(filepath.Join(testbed.Data(t, "formats/tensorflow_tfx"), "components/testdata/csv_example_gen/Split-*/*.gz"))
	if err != nil {
		t.Fatal(err)
	}
	features := []parse.Feature{
		{Name: "payment_type", Slot: 1, Type: parse.String},
		{Name: "company", Slot: 2, Type: parse.String},
		{Name: "hour", Column: "trip_start_hour", Slot: 3, Type: parse.Int},
		{Name: "tract", Column: "pickup_census_tract", Slot: 4, Type: parse.Int},
		{Name: "fare", Kind: parse.Dense},
		{Name: "trip_miles", Kind: parse.Dense},
		{Name: "pickup_latitude", Kind: parse.Dense},
	}
	label := parse.Label{Column: "tips", Positive: "> 0"}
	records := lines(string(readGzip(t, dir, "data.csv.gz")))
	fromCSV := parseRecords(t, parse.Options{Format: parse.CSV, Features: features, Labels: []parse.Label{label}}, string(records[0]), records[1:]...)

	var examples [][]byte
	for _, shard := range shards {
		for b := readGzip(t, shard); len(b) > 0; {
			n := int(binary.LittleEndian.Uint64(b)) // length, its checksum, record, its checksum
			examples = append(examples, b[12:12+n])
			b = b[16+n:]
		}
	}
	fromTF := parseRecords(t, parse.Options{Format: parse.TFExample, Features: features, Labels: []parse.Label{label}}, "", examples...)
	if len(fromCSV.rows) != 15002 || len(fromTF.rows) != len(examples) || len(examples) < 500 || len(fromCSV.bad)+len(fromTF.bad) != 0 {
		t.Errorf("%d rows of csv, %d of %d tf.Examples, bad rows %q %q", len(fromCSV.rows), len(fromTF.rows), len(examples), fromCSV.bad, fromTF.bad)
	}
	trips := map[string]int{}
	for _, r := range fromCSV.rows {
		r, _, _ = strings.Cut(r, " __position__")
		trips[r]++
	}
	for _, r := range fromTF.rows {
		if r, _, _ = strings.Cut(r, " __position__"); trips[r] == 0 {
			t.Fatalf("no line of csv has become\n%s", r)
		}
		trips[r]--
	}
}
