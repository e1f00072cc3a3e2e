package parse_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
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

// slowDraw is the draw of a record, written the other way round: the hash of its bytes and the place, mixed by SplitMix64's finaliser, as a part of 1.
func slowDraw(hash uint64) *big.Rat {
	multiply := func(x uint64, by string) uint64 {
		b, _ := new(big.Int).SetString(by, 16)
		b.Mul(b, new(big.Int).SetUint64(x))
		return b.And(b, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	}
	hash = multiply(hash^hash>>30, "bf58476d1ce4e5b9")
	hash = multiply(hash^hash>>27, "94d049bb133111eb")
	return new(big.Rat).SetFrac(new(big.Int).SetUint64((hash^hash>>31)>>11), new(big.Int).Lsh(big.NewInt(1), 53))
}

// placedRow is a record at a place, with what else decides.
type placedRow struct {
	record      string
	begin, draw int64
}

// slow reports whether a row is held out.
func (r placedRow) slow(columns, drawn bool, share float64) bool {
	hash := uint64(r.begin)
	switch {
	case drawn:
		hash = uint64(r.draw)
	case !columns:
		hash = (fid.HashBytes([]byte(r.record)) ^ uint64(r.begin)) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	limit, _ := new(big.Rat).SetString(fmt.Sprint(share))
	return slowDraw(hash).Cmp(limit) < 0
}

// heldRows returns where the rows that a holdout keeps begin, of blocks or columns of any number of rows; begins: they say where each begins.
func heldRows(t *testing.T, h parse.Holdout, rows []placedRow, columns, begins, drawn bool, at int) (out []int64) {
	t.Helper()
	mem := checked(t)
	schema := pipeline.BlockSchema(false, false)
	opts := parse.Options{Format: parse.CSV, Columns: []string{"user"}, Features: []parse.Feature{{Name: "user", Slot: 1}}, Holdout: h}
	if columns {
		opts.Format, opts.Columns = "", nil
		schema = arrow.NewSchema([]arrow.Field{{Name: "user", Type: arrow.BinaryTypes.Binary}, schema.Field(1)}, nil)
	}
	if begins {
		schema = pipeline.WithBegin(schema)
	}
	if drawn {
		schema = arrow.NewSchema(append(schema.Fields(), arrow.Field{Name: pipeline.ColDraw, Type: arrow.PrimitiveTypes.Int64}), nil)
	}
	keep := func(b *pipeline.Batch) error {
		defer b.Release()
		out = append(out, b.Positions()...)
		return nil
	}
	var process func(rec arrow.RecordBatch, o pipeline.Origin) error
	env := &pipeline.Env{Allocator: mem, BadRows: &badRows{}}
	if columns {
		p, err := parse.NewColumns(opts).Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		process = func(rec arrow.RecordBatch, o pipeline.Origin) error {
			b, err := pipeline.NewBatch(rec, o)
			if err != nil {
				return err
			}
			return p.Process(t.Context(), b, keep)
		}
	} else {
		p, err := parse.New(opts).Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		process = func(rec arrow.RecordBatch, o pipeline.Origin) error {
			b, err := pipeline.NewBlock(rec, o)
			if err != nil {
				return err
			}
			return p.Process(t.Context(), b, keep)
		}
	}
	from := int64(1000)
	for part := range slices.Chunk(rows, at) {
		b := array.NewRecordBuilder(mem, schema)
		to := from
		for _, r := range part {
			to = max(to, r.begin+1)
			b.Field(0).(*array.BinaryBuilder).AppendString(r.record)
			b.Field(1).(*array.Int64Builder).Append(r.begin + 1) // where the next one begins
			for i, f := range schema.Fields()[2:] {
				v := r.begin
				if f.Name == pipeline.ColDraw {
					v = r.draw
				}
				b.Field(2 + i).(*array.Int64Builder).Append(v)
			}
		}
		if err := process(b.NewRecordBatch(), pipeline.Origin{Source: "src", Split: "part-0", From: pipeline.Position(from), To: pipeline.Position(to)}); err != nil {
			t.Fatal(err)
		}
		b.Release()
		from = to
	}
	slices.Sort(out)
	return out
}

// TestHoldoutDrawsRows: without a column each row is drawn by its bytes and place, or as the source says. Equal rows fall on both sides, a larger share has what
// a smaller one has, and neither blocks, order nor what is read from where make a difference.
func TestHoldoutDrawsRows(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]placedRow, 2000)
	for i := range rows {
		rows[i] = placedRow{fmt.Sprint("u", i%4), int64(1000 + i), int64(rng.Uint64())}
	}
	for _, columns := range []bool{false, true} {
		for _, drawn := range []bool{false, true} {
			var smaller []int64
			for _, share := range []float64{.05, .1, .5} {
				var want []int64
				users := map[string]int{}
				for _, r := range rows {
					if r.slow(columns, drawn, share) {
						want = append(want, r.begin+1)
						users[r.record]++
					}
				}
				if n := float64(len(want)) / float64(len(rows)); math.Abs(n-share) > .03 {
					t.Errorf("a share of %v is %v of the rows", share, n)
				}
				for i := range 4 {
					if n := float64(users[fmt.Sprint("u", i)]) / float64(len(rows)) * 4; math.Abs(n-share) > .06 {
						t.Errorf("a share of %v is %v of equal rows", share, n)
					}
				}
				for _, at := range smaller {
					if !slices.Contains(want, at) {
						t.Fatalf("a share of %v does not hold out row %d, and a smaller one does", share, at)
					}
				}
				smaller = want
				h := parse.Holdout{Share: share, Side: parse.Held}
				for _, at := range []int{1, 7, 300, 5000} {
					for _, begins := range []bool{false, true} {
						if diff := cmp.Diff(want, heldRows(t, h, rows, columns, begins, drawn, at)); diff != "" {
							t.Fatalf("columns %t, drawn %t, begins %t, share %v, %d rows at a time (-want +got):\n%s", columns, drawn, begins, share, at, diff)
						}
					}
				}
				other := slices.Clone(rows)
				rng.Shuffle(len(other), func(i, k int) { other[i], other[k] = other[k], other[i] })
				if diff := cmp.Diff(want, heldRows(t, h, other, columns, true, drawn, len(rows))); diff != "" {
					t.Fatalf("shuffled: columns %t, drawn %t (-want +got):\n%s", columns, drawn, diff)
				}
				h.Side = parse.Rest
				if got := len(heldRows(t, h, rows, columns, true, drawn, 100)); got != len(rows)-len(want) {
					t.Fatalf("%d rows are left of %d", got, len(rows)-len(want))
				}
			}
		}
	}
}

// TestHoldoutAllocatesNothing: a draw of rows allocates nothing for a row.
func TestHoldoutAllocatesNothing(t *testing.T) {
	for _, columns := range []bool{false, true} {
		allocs := func(h parse.Holdout) float64 {
			opts := plainOptions
			var process func() error
			keep := func(b *pipeline.Batch) error { b.Release(); return nil }
			if columns {
				var rows []string
				for i := range 1000 {
					rows = append(rows, fmt.Sprintf(`"user":%d,"tags":["t"],"vec":[1,2],"rating":4,`, i))
				}
				opts.Holdout = h
				p, err := parse.NewColumns(opts).Open(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				batch := plainBatch(t, memory.DefaultAllocator, 0, rows...)
				defer batch.Release()
				process = func() error {
					again, err := batch.Slice(0, len(rows))
					if err != nil {
						return err
					}
					return p.Process(t.Context(), again, keep)
				}
			} else {
				opts = holdoutOptions(parse.CSV)
				opts.Holdout = h
				p, err := parse.New(opts).Open(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				block := blockOf(t, memory.DefaultAllocator, 0, "", holdoutRows(parse.CSV, 1000, 40)...)
				defer block.Release()
				process = func() error {
					block.Record().Retain()
					again, err := pipeline.NewBlock(block.Record(), block.Origin())
					if err != nil {
						return err
					}
					return p.Process(t.Context(), again, keep)
				}
			}
			return testing.AllocsPerRun(20, func() {
				if err := process(); err != nil {
					t.Fatal(err)
				}
			})
		}
		without, with := allocs(parse.Holdout{}), allocs(parse.Holdout{Share: .1, Side: parse.Rest})
		if with > without+100 { // columns are copied without what is held out
			t.Errorf("columns %t: %v allocations a batch of 1,000 rows with a holdout, %v without", columns, with, without)
		}
	}
}

// TestHoldoutOfColumns: a row of plain columns is divided whatever features and keys are read; and by a column as text is.
func TestHoldoutOfColumns(t *testing.T) {
	t.Parallel()
	mem := checked(t)
	var rows []string
	for i := range 600 {
		rows = append(rows, fmt.Sprintf(`"user":%d,"tags":["t%d","u"],"vec":[1,%d],"rating":%d,`, i%60, i%7, i, i%5))
	}
	positions := func(side parse.Side, column string, keys ...parse.Key) (out []int64) {
		opts := plainOptions
		if len(keys) > 0 {
			opts.Features = opts.Features[1:]
		}
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
