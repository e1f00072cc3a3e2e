package score_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline/fid"
)

func encoder(tb testing.TB, s score.Schema) *score.Encoder {
	tb.Helper()
	e, err := score.NewEncoder(s)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// plain is the schema of most models.
func plain() score.Schema { return score.Schema{Heads: []score.HeadSchema{{Width: 1, NumLabels: 1}}} }

// randomSchema is one of up to three heads and two keys.
func randomSchema(r *rand.Rand) (s score.Schema) {
	for i := range 1 + r.IntN(3) {
		s.Heads = append(s.Heads, score.HeadSchema{Name: fmt.Sprint("h", i), Width: 1 + r.IntN(3), NumLabels: 1 + r.IntN(2)})
	}
	for i := range r.IntN(3) {
		s.Keys = append(s.Keys, fmt.Sprint("k", i))
	}
	return s
}

func randomBatch(r *rand.Rand, s score.Schema, rows int) *score.Batch {
	floats := func(n int) (out []float32) {
		for range n {
			out = append(out, r.Float32())
		}
		return out
	}
	b := &score.Batch{Rows: rows}
	for _, h := range s.Heads {
		head := score.Head{Width: h.Width, NumLabels: h.NumLabels, Predictions: floats(rows * h.Width), Labels: floats(rows * h.NumLabels)}
		if r.IntN(2) == 0 {
			for range rows {
				head.Mask = append(head.Mask, r.IntN(3) > 0)
			}
		}
		b.Heads = append(b.Heads, head)
	}
	if r.IntN(2) == 0 {
		b.Weights = floats(rows)
	}
	for range s.Keys {
		k := score.Key{}
		for range rows {
			k.Append(fmt.Append(nil, "user", r.IntN(5)))
		}
		b.Keys = append(b.Keys, k)
	}
	return b
}

// TestTraceForm pins the bytes: snapshots hold them.
func TestTraceForm(t *testing.T) {
	t.Parallel()
	one := encoder(t, plain())
	b := &score.Batch{Rows: 2, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: []float32{0.25, 1}, Labels: []float32{1, 0}}}, Weights: []float32{2, 0.5}}
	want := []byte{
		9,
		1, 1, 0, 0, 1, 0, 1, 0, 0,
		0, 0, 0x80, 0x3e, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40,
		0, 0, 0x80, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x3f,
	}
	if diff := cmp.Diff(want, one.Append([]byte{9}, b)); diff != "" {
		t.Errorf("one head (-want +got):\n%s", diff)
	}
	two := encoder(t, score.Schema{Heads: []score.HeadSchema{{Name: "a", Width: 2, NumLabels: 1}, {Name: "", Width: 1, NumLabels: 1}}, Keys: []string{"user"}})
	key := score.Key{}
	key.Append([]byte("u7"))
	got := two.Append(nil, &score.Batch{
		Rows: 1, Keys: []score.Key{key},
		Heads: []score.Head{
			{Width: 2, NumLabels: 1, Predictions: []float32{1, 2}, Labels: []float32{7}, Mask: []bool{false}},
			{Width: 1, NumLabels: 1, Predictions: []float32{3}, Labels: []float32{4}, Mask: []bool{true}},
		},
	})
	want = []byte{1, 2, 1, 0, 2, 0, 1, 0, 1, 'a', 1, 0, 1, 0, 0, 4, 'u', 's', 'e', 'r'}
	for _, v := range []float32{1, 2, float32(math.NaN()), 3, 4, 1} {
		want = binary.LittleEndian.AppendUint32(want, math.Float32bits(v))
	}
	want = binary.LittleEndian.AppendUint64(want, fid.HashString("u7"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("two heads and a key (-want +got):\n%s", diff)
	}
	if got := score.Records(got); len(got) != 6*4+8 {
		t.Errorf("%d bytes of records", len(got))
	}
}

// TestTraceComesBack decodes what random batches became.
func TestTraceComesBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 5))
	for round := range 300 {
		s := randomSchema(r)
		b := randomBatch(r, s, round%20)
		trace := encoder(t, s).Append(nil, b)
		schema, got, err := score.Decode(trace)
		if err != nil {
			t.Fatal(err)
		}
		if b.Rows == 0 {
			if len(trace) != 0 || got.Rows != 0 {
				t.Fatalf("no rows are %d bytes", len(trace))
			}
			continue
		}
		if diff := cmp.Diff(s, schema); diff != "" {
			t.Fatalf("schema (-want +got):\n%s", diff)
		}
		for i := range b.Heads {
			h, g := &b.Heads[i], &got.Heads[i]
			if !slices.Equal(h.Predictions, g.Predictions) {
				t.Fatalf("head %d: predictions %v, want %v", i, g.Predictions, h.Predictions)
			}
			for row := range b.Rows {
				counts := h.Mask == nil || h.Mask[row]
				if counts != (g.Mask == nil || g.Mask[row]) {
					t.Fatalf("head %d, row %d: counts is %v", i, row, !counts)
				}
				at := row * h.NumLabels
				if counts && !slices.Equal(h.Labels[at:at+h.NumLabels], g.Labels[at:at+h.NumLabels]) {
					t.Fatalf("head %d, row %d: labels %v, want %v", i, row, g.Labels, h.Labels)
				}
			}
		}
		for row := range b.Rows {
			want := float32(1)
			if b.Weights != nil {
				want = b.Weights[row]
			}
			if got.Weights[row] != want {
				t.Fatalf("weights %v, want %v", got.Weights, b.Weights)
			}
			for i := range b.Keys {
				if got := binary.LittleEndian.Uint64(got.Keys[i].Value(row)); got != fid.HashBytes(b.Keys[i].Value(row)) {
					t.Fatalf("key %d, row %d: %x", i, row, got)
				}
			}
		}
	}
}

func TestSchemaFaults(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, 256))
	for name, s := range map[string]score.Schema{
		"no heads":   {},
		"long name":  {Heads: []score.HeadSchema{{Name: long, Width: 1, NumLabels: 1}}},
		"no outputs": {Heads: []score.HeadSchema{{Width: 0, NumLabels: 1}}},
		"wide":       {Heads: []score.HeadSchema{{Width: 1 << 16, NumLabels: 1}}},
		"empty key":  {Heads: plain().Heads, Keys: []string{""}},
		"many heads": {Heads: slices.Repeat(plain().Heads, 256)},
		"large":      {Heads: slices.Repeat([]score.HeadSchema{{Width: 1<<16 - 1, NumLabels: 1}}, 100)},
	} {
		if _, err := score.NewEncoder(s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRingKeepsTheLast compares with a slice of all records, around every length at which the ring turns, with changes of the
// schema and traces of none.
func TestRingKeepsTheLast(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	const most = score.MaxExamples
	sizes := []int{0, 1, most - 1, 1, most, most + 5, 7, most - 1, 0, 2*most + 1, most / 2, most / 2}
	for range 25 {
		sizes = append(sizes, r.IntN(1<<(1+r.IntN(17))))
	}
	var ring score.Ring
	if ring.Bytes() != nil {
		t.Fatal("an empty ring has bytes")
	}
	schema := plain()
	var header, all []byte // of the schema at work
	size := 12
	want := func() []byte {
		if len(all) == 0 {
			return nil
		}
		return slices.Concat(header, all[max(0, len(all)-most*size):])
	}
	for i, n := range sizes {
		if i%10 == 9 {
			schema = score.Schema{Heads: []score.HeadSchema{{Name: fmt.Sprint(i), Width: 1, NumLabels: 1}}}
			if i%20 == 9 {
				schema.Keys = []string{"k"}
			}
		}
		b := randomBatch(r, schema, n)
		trace := encoder(t, schema).Append(nil, b)
		if n > 0 {
			records := score.Records(trace)
			if h := trace[:len(trace)-len(records)]; !bytes.Equal(h, header) {
				header, all, size = bytes.Clone(h), nil, len(records)/n
			}
			all = append(all, records...)
			tail, err := score.AppendTail([]byte("x"), trace)
			if err != nil || !bytes.Equal(tail[1:], slices.Concat(header, records[max(0, len(records)-most*size):])) {
				t.Fatalf("a tail of %d bytes, %v", len(tail), err)
			}
		}
		add := ring.Add
		if i%7 == 6 {
			add, all = ring.Set, bytes.Clone(score.Records(trace))
		}
		if err := add(trace); err != nil {
			t.Fatal(err)
		}
		clear(trace) // the buffer is the caller's again
		if got := ring.Bytes(); !bytes.Equal(got, want()) || got != nil && len(got) == 0 {
			t.Fatalf("step %d, %d rows: %d bytes, want %d, or others", i, n, len(got), len(want()))
		}
	}
	if err := ring.Add([]byte("no trace")); !errors.Is(err, score.ErrTrace) || !bytes.Equal(ring.Bytes(), want()) {
		t.Errorf("bytes that are no trace: %v", err)
	}
	if err := ring.Set(nil); err != nil || ring.Bytes() != nil {
		t.Errorf("set to nothing: %v", err)
	}
}

// TestManyHeadsAreBounded: records so large that 65,536 of them would be a gigabyte.
func TestManyHeadsAreBounded(t *testing.T) {
	t.Parallel()
	s := score.Schema{Heads: []score.HeadSchema{{Width: 4000, NumLabels: 1}}}
	trace := encoder(t, s).Append(nil, randomBatch(rand.New(rand.NewPCG(1, 1)), s, 1200))
	var ring score.Ring
	if err := ring.Add(trace); err != nil {
		t.Fatal(err)
	}
	if got := len(score.Records(ring.Bytes())); got > 16<<20 || got < 15<<20 || got%(4*4002) != 0 {
		t.Errorf("kept %d bytes", got)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range []score.Schema{plain(), {Heads: []score.HeadSchema{{Name: "a", Width: 2, NumLabels: 2}, {Name: "b", Width: 1, NumLabels: 1}}, Keys: []string{"k"}}} {
		e, b := encoder(t, s), randomBatch(r, s, 500)
		var ring score.Ring
		var trace, tail []byte
		step := func() {
			trace = e.Append(trace[:0], b)
			var err error
			if tail, err = score.AppendTail(tail[:0], trace); err != nil {
				t.Error(err)
			}
			if err := ring.Add(tail); err != nil {
				t.Error(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0, 0})
	f.Add([]byte{2, 1, 0, 0, 1, 0, 1, 0, 0})
	r := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		s := randomSchema(r)
		f.Add(encoder(f, s).Append(nil, randomBatch(r, s, 3)))
	}
	f.Fuzz(func(t *testing.T, trace []byte) {
		err := score.Check(trace)
		s, b, derr := score.Decode(trace)
		if (err == nil) != (derr == nil) || err != nil && (!errors.Is(err, score.ErrTrace) || !errors.Is(derr, score.ErrTrace)) {
			t.Fatalf("checked: %v, decoded: %v", err, derr)
		}
		var ring score.Ring
		if rerr := ring.Set(trace); (rerr == nil) != (err == nil) {
			t.Fatalf("checked: %v, set: %v", err, rerr)
		}
		if err != nil || b.Rows == 0 {
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if kept := ring.Bytes(); !bytes.HasSuffix(trace, score.Records(kept)) || len(kept) > 17<<20 {
			t.Fatalf("a trace of %d bytes is kept as %d", len(trace), len(kept))
		}
		// Whatever was decoded writes the same predictions and weights again.
		again := encoder(t, s).Append(nil, b)
		if len(again) != len(trace) {
			t.Fatalf("%d bytes are %d again", len(trace), len(again))
		}
		_, c, err := score.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Heads {
			for k, p := range b.Heads[i].Predictions {
				if math.Float32bits(p) != math.Float32bits(c.Heads[i].Predictions[k]) {
					t.Fatalf("head %d: %v is %v again", i, p, c.Heads[i].Predictions[k])
				}
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for name, s := range map[string]score.Schema{
		"heads=1": plain(), "heads=2": {Heads: []score.HeadSchema{{Name: "a", Width: 1, NumLabels: 1}, {Name: "b", Width: 1, NumLabels: 1}}},
	} {
		b.Run(name, func(b *testing.B) {
			e, batch := encoder(b, s), randomBatch(r, s, 512)
			batch.Heads[0].Mask = nil
			var trace []byte
			b.ReportAllocs()
			for b.Loop() {
				trace = e.Append(trace[:0], batch)
			}
			b.SetBytes(int64(len(trace)))
		})
	}
}
