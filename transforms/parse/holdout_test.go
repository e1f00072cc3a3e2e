package parse_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// divide returns the numbers of the rows that a holdout keeps, by side, which together have to be all rows once.
func divide(t *testing.T, opts parse.Options, h parse.Holdout, records [][]byte) (rest, held []string) {
	t.Helper()
	opts.Holdout = h
	all := map[string]int{}
	for side, into := range map[parse.Side]*[]string{parse.Rest: &rest, parse.Held: &held} {
		opts.Holdout.Side = side
		r := parseRecords(t, opts, "", records...)
		if len(r.bad) > 0 {
			t.Fatalf("bad rows: %q", r.bad)
		}
		for _, row := range r.rows {
			_, n, _ := strings.Cut(row, "n=")
			n, _, _ = strings.Cut(n, " ")
			*into = append(*into, n)
			all[n]++
		}
	}
	for n, times := range all {
		if times != 1 {
			t.Fatalf("row %s is on %d sides", n, times)
		}
	}
	if len(all) != len(records) {
		t.Fatalf("%d of %d rows are on a side", len(all), len(records))
	}
	return rest, held
}

// holdoutRows writes rows of n, user, text of a time and label in a format.
func holdoutRows(format parse.Format, rows, users int) (out [][]byte) {
	for n := range rows {
		user, at := n*7919%users, fmt.Sprintf("2026-%02d-%02d", 1+n/28%12, 1+n%28)
		line := fmt.Sprintf("%d,%d,%s,%d", n, user, at, n%2)
		if format == parse.JSONL {
			line = fmt.Sprintf(`{"y": %d, "at": %q, "user": %d, "n": %d}`, n%2, at, user, n)
		}
		out = append(out, []byte(line))
	}
	return out
}

func holdoutOptions(format parse.Format) parse.Options {
	o := parse.Options{
		Format:   format,
		Features: []parse.Feature{{Name: "n", Kind: parse.Dense}, {Name: "user", Slot: 1}},
		Labels:   []parse.Label{{Column: "y"}},
	}
	if format == parse.CSV {
		o.Columns = []string{"n", "user", "at", "y"}
	}
	return o
}

// TestHoldoutDivides: both sides together are all rows, each once; a share is about what is asked, holds out what a smaller one does, and by a column it takes
// all rows of a value or none, the same ones in every format.
func TestHoldoutDivides(t *testing.T) {
	t.Parallel()
	const rows = 4000
	csv := holdoutRows(parse.CSV, rows, 400)
	for _, column := range []string{"", "user"} {
		var smaller []string
		for _, share := range []float64{.05, .1, .3, .9} {
			_, held := divide(t, holdoutOptions(parse.CSV), parse.Holdout{Column: column, Share: share}, csv)
			if got := float64(len(held)) / rows; got < share-.04 || got > share+.04 {
				t.Errorf("by %q a share of %v is %v of the rows", column, share, got)
			}
			for _, n := range smaller {
				if !slices.Contains(held, n) {
					t.Fatalf("by %q a share of %v does not hold out row %s, and a smaller one does", column, share, n)
				}
			}
			smaller = held
		}
	}
	h := parse.Holdout{Column: "user", Share: .2}
	_, held := divide(t, holdoutOptions(parse.CSV), h, csv)
	_, same := divide(t, holdoutOptions(parse.JSONL), h, holdoutRows(parse.JSONL, rows, 400))
	if !slices.Equal(held, same) {
		t.Errorf("csv holds out %d rows, JSON %d, or others", len(held), len(same))
	}
	side := map[int]bool{} // of each user
	for n := range rows {
		user, is := n*7919%400, slices.Contains(held, fmt.Sprint(n))
		if was, ok := side[user]; ok && was != is {
			t.Fatalf("user %d is on both sides", user)
		}
		side[user] = is
	}
}

// TestHoldoutFrom: rows from a value on are held out, of numbers and of text; without a value a row is not.
func TestHoldoutFrom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ column, from, held string }{
		{"n", "3", "[3 4 5]"},
		{"n", "2.5", "[3 4 5]"},
		{"n", "99", "[]"},
		{"at", "2026-01-05", "[4 5]"},
		{"at", "2026-01-05 12:00", "[5]"},
	} {
		for _, format := range []parse.Format{parse.CSV, parse.JSONL} {
			if _, held := divide(t, holdoutOptions(format), parse.Holdout{Column: tt.column, From: tt.from}, holdoutRows(format, 6, 3)); fmt.Sprint(held) != tt.held {
				t.Errorf("%s from %s of %s holds out %v, want %s", format, tt.from, tt.column, held, tt.held)
			}
		}
	}
	rest, held := divide(t, holdoutOptions(parse.CSV), parse.Holdout{Column: "at", From: "1"}, lines("1,1,,0\n2,1, 7 ,1\n"))
	if fmt.Sprint(rest, held) != "[1] [2]" {
		t.Errorf("without a value: %v is trained on, %v held out", rest, held)
	}
}

// TestHoldoutSaysWhatIsWrong: a value that cannot be compared makes a bad row that says so; what is in the columns of the other side's rows is not looked at.
func TestHoldoutSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	opts := holdoutOptions(parse.CSV)
	opts.Holdout = parse.Holdout{Column: "at", From: "2026"}
	r := parseRecords(t, opts, "", lines("1,1,2026-01-01,0\n2,1,2027,broken\n3,1,2025,1\n")...)
	want := `column "at" is "2026-01-01", which cannot be compared with the number 2026 (holdout: from)`
	if len(r.bad) != 1 || !strings.Contains(r.bad[0], want) || len(r.rows) != 1 || !strings.HasPrefix(r.rows[0], "n=3") {
		t.Errorf("rows %q, bad %q; want row 3 and %s", r.rows, r.bad, want)
	}
	for _, tt := range []struct {
		h    parse.Holdout
		want string
	}{
		{parse.Holdout{Share: 1}, "share is 1, not between 0 and 1"},
		{parse.Holdout{Column: "user"}, "share is 0, not between"},
		{parse.Holdout{From: "3"}, "there is no column"},
		{parse.Holdout{Column: "usr", Share: .1}, `there is no column "usr", did you mean "user"?`},
		{parse.Holdout{Column: "n", Share: .1, From: "3"}, "one of them decides"},
		{parse.Holdout{Share: .1, Side: "hold"}, `side "hold" is not known`},
	} {
		opts.Holdout = tt.h
		if err := opts.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.h, err, tt.want)
		}
	}
}

// TestHoldoutOfColumns: a row of plain columns is divided by what features, labels and weight read, whatever keys are read beside; and by a column as text is.
func TestHoldoutOfColumns(t *testing.T) {
	t.Parallel()
	mem := checked(t)
	var rows []string
	for i := range 600 {
		rows = append(rows, fmt.Sprintf(`"user":%d,"tags":["t%d","u"],"vec":[1,%d],"rating":%d,`, i%60, i%7, i, i%5))
	}
	positions := func(side parse.Side, column string, keys ...parse.Key) (out []int64) {
		opts := plainOptions
		opts.Keys, opts.Holdout = keys, parse.Holdout{Column: column, Share: .25, Side: side}
		p, err := parse.NewColumns(opts).Open(t.Context(), &pipeline.Env{Allocator: mem, BadRows: &badRows{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Process(t.Context(), plainBatch(t, mem, 0, rows...), func(b *pipeline.Batch) error {
			defer b.Release()
			out = slices.Clone(b.Positions())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, column := range []string{"", "user"} {
		rest, held := positions(parse.Rest, column), positions(parse.Held, column, parse.Key{Name: "name"})
		if len(rest)+len(held) != len(rows) || len(held) < 60 || len(held) > 240 {
			t.Errorf("by %q %d rows are held out and %d are not, of %d", column, len(held), len(rest), len(rows))
		}
		for _, at := range held {
			if slices.Contains(rest, at) {
				t.Fatalf("by %q the row at %d is on both sides", column, at)
			}
		}
	}
}
