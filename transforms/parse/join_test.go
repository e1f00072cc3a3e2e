package parse_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// movieLens are options for ratings with users and movies beside them, in the form of MovieLens 1M.
func movieLens(users, movies string) parse.Options {
	return parse.Options{
		Format:  parse.TSV,
		Columns: []string{"user_id", "movie_id", "label", "rating", "timestamp"},
		Features: []parse.Feature{
			{Name: "user", Column: "user_id", Slot: 1, Type: parse.Int},
			{Name: "movie", Column: "movie_id", Slot: 2, Type: parse.Int},
			{Name: "gender", Slot: 3, Default: "?"},
			{Name: "age", Kind: parse.Dense, Default: "-1"},
			{Name: "genres", Column: "m_genres", Slot: 4, Split: "|"},
			{Name: "year", Column: "m_title", Slot: 5, Type: parse.Int, Regexp: `\((\d{4})\)\s*$`},
		},
		Labels: []parse.Label{{Column: "label"}},
		Joins: []parse.Join{
			{File: users, Delimiter: "::", Columns: []string{"user_id", "gender", "age", "", "zip"}, Key: "user_id"},
			{File: movies, Delimiter: "::", Columns: []string{"id", "title", "genres"}, Key: "movie_id", KeyColumn: "id", Encoding: parse.Latin1, Prefix: "m_"},
		},
	}
}

func TestJoins(t *testing.T) {
	t.Parallel()
	users := writeFile(t, "users.dat", "1::F::1::10::48067\r\n2::M::old::16::70072\r\n\r\n3::::56::16::70072")
	movies := writeFile(t, "movies.dat", "1::Toy Story (1995)::Animation|Children's|Comedy\n2::Caf\xe9 (x)::Dram\xe9\n3::::\n")
	opts := movieLens(users, movies)
	stage := parse.New(opts)
	schema, err := stage.Schema(pipeline.BlockSchema(false, true))
	if err != nil {
		t.Fatal(err)
	}
	mem := checked(t)
	var bad badRows
	missed := joinMisses{}
	env := &pipeline.Env{Allocator: mem, BadRows: &bad, Hooks: pipeline.NewHooks(missed)}
	var got []string
	for run := range 2 { // the second processor of a worker does not read the files again
		p, err := stage.Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		block := blockOf(t, mem, 0, "", lines("1\t1\t1\t4\t9\n3\t2\t0\t\t\n9\t9\t1\t5\t9\n2\t1\t1\t5\t9\n\t1\t0\t5\t9\n1\tx\t0\t5\t9")...)
		if err := p.Process(t.Context(), block, func(b *pipeline.Batch) error {
			defer b.Release()
			got = render(t, b, schema)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			if err := errors.Join(os.Remove(users), os.Remove(movies)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{
		fmt.Sprintf("user=[1:1] movie=[2:1] gender=[3:%s] age=1 genres=[4:%s 4:%s 4:%s] year=[5:1995] __label__=1 __position__=10", sig("F"), sig("Animation"), sig("Children's"), sig("Comedy")),
		fmt.Sprintf("user=[1:3] movie=[2:2] gender=[3:%s] age=56 genres=[4:%s] year=[] __label__=0 __position__=20", sig("?"), sig("Dramé")),
		fmt.Sprintf("user=[1:9] movie=[2:9] gender=[3:%s] age=-1 genres=[] year=[] __label__=1 __position__=30", sig("?")),
		fmt.Sprintf("user=[] movie=[2:1] gender=[3:%s] age=-1 genres=[4:%s 4:%s 4:%s] year=[5:1995] __label__=0 __position__=50", sig("?"), sig("Animation"), sig("Children's"), sig("Comedy")),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	wantBad := []string{
		fmt.Sprintf(`src/part-0 position 30: bad side table value: %s, key "2": bad number: feature "age" is "old", not a number "2\t1\t1\t5\t9"`, users),
		`src/part-0 position 50: bad number: feature "movie" is "x", not an integer of 64 bits "1\tx\t0\t5\t9"`,
	}
	if diff := cmp.Diff(append(wantBad, wantBad...), bad.lines); diff != "" {
		t.Errorf("bad rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(joinMisses{filepath.Base(users): 4, filepath.Base(movies): 2}, missed); diff != "" { // users 9 and "", movie 9; twice
		t.Errorf("misses (-want +got):\n%s", diff)
	}
	if err := env.CloseResources(); err != nil {
		t.Error(err)
	}
	if _, err := stage.Open(t.Context(), env); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("opening without the files: %v", err)
	}
}

// Keys of other formats are text or integers.
func TestJoinKeys(t *testing.T) {
	t.Parallel()
	side := writeFile(t, "side.csv", "\ufeffid,\"the value\"\n7,\"a, b\"\nx,c\n")
	join := []parse.Join{{File: side, Delimiter: ",", Header: true, Columns: []string{"id", "v"}, Key: "k", KeyColumn: "id"}}
	features := []parse.Feature{{Name: "v", Slot: 1}}
	want := []string{fmt.Sprintf("v=[1:%s] __position__=10", sig("a, b")), fmt.Sprintf("v=[1:%s] __position__=20", sig("c")), "v=[] __position__=30", "v=[] __position__=40"}
	t.Run("jsonl", func(t *testing.T) {
		t.Parallel()
		check(t, parseRecords(t, parse.Options{Format: parse.JSONL, Features: features, Joins: join}, "", lines(`{"k":7}
{"k":"x"}
{"k":8.5}
{}`)...), want, nil)
	})
	t.Run("tf_example", func(t *testing.T) {
		t.Parallel()
		var e example.Encoder
		e.Int64s("k", 7)
		records := [][]byte{e.Append(nil)}
		e.Strings("k", "x")
		records = append(records, e.Append(nil))
		e.Floats("k", 7)
		records = append(records, e.Append(nil))
		records[2] = append(records[2], 0) // and one that cannot be read
		records = append(records, e.Append(nil))
		check(t, parseRecords(t, parse.Options{Format: parse.TFExample, Features: features, Joins: join}, "", records...),
			[]string{want[0], want[1], want[3]}, []string{fmt.Sprintf("src/part-0 position 20: malformed example: bad field tag at byte 17 %q", records[2])})
	})
	t.Run("columns", func(t *testing.T) {
		t.Parallel()
		join := join[0]
		join.Key = "user"
		stage := parse.NewColumns(parse.Options{Features: features, Joins: []parse.Join{join}})
		schema, err := stage.Schema(plain)
		if err != nil {
			t.Fatal(err)
		}
		p, err := stage.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Process(t.Context(), plainBatch(t, memory.DefaultAllocator, 0, `"user":7,`, `"user":8,`), func(b *pipeline.Batch) error {
			defer b.Release()
			if diff := cmp.Diff([]string{want[0], "v=[] __position__=20"}, render(t, b, schema)); diff != "" {
				t.Error(diff)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestJoinFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		max        int64
		kind       error
		want       string
	}{
		{"fields", "1\ta\n2\n", 0, pipeline.ErrConfig, "side:2: 1 fields instead of 2"},
		{"key twice", "1\ta\n2\tb\n1\tc\n", 0, pipeline.ErrConfig, `side:3: key "1" occurs twice`},
		{"encoding", "1\tCaf\xe9\n", 0, pipeline.ErrConfig, "side:1: not UTF-8, is it latin1?"},
		{"UTF-16", "\xff\xfe1\x00\t\x00a\x00\n\x00", 0, pipeline.ErrConfig, "side is text in UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8"},
		{"gzip", "\x1f\x8b\x08\x00", 0, pipeline.ErrConfig, "side is compressed by gzip, and what is not compressed is read; convert it: gzip -dc"},
		{"Parquet", "PAR1\x15\x04", 0, pipeline.ErrConfig, "side is in Parquet, and text is read"},
		{"size", "1\tabcdef\n", 5, pipeline.ErrConfig, "is larger than max_bytes, 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := parse.Options{
				Format: parse.TSV, Columns: []string{"k"}, Features: []parse.Feature{{Name: "v", Slot: 1}},
				Joins: []parse.Join{{File: writeFile(t, "side", tc.text), Columns: []string{"k", "v"}, Key: "k", MaxBytes: tc.max}},
			}
			_, err := parse.New(opts).Open(t.Context(), nil)
			if !errors.Is(err, tc.kind) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("error is %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := parse.New(movieLens("a", "b")).Open(ctx, nil); !errors.Is(err, gone) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// joinMisses counts the examples that had no line in each side table.
type joinMisses map[string]int64

func (m joinMisses) JoinMissed(table string, examples int64) { m[table] += examples }
