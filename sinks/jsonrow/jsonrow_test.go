package jsonrow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
)

// TestRowsAsJSON: what each type becomes.
func TestRowsAsJSON(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "age", Type: arrow.PrimitiveTypes.Float32},
		{Name: "vector", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
		{Name: "city", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: pipeline.ColLineID, Type: arrow.BinaryTypes.Binary},
		{Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
		{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64},
		{Name: pipeline.ColKey, Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	for i, city := range []string{`Köln "am" Rhein`, ""} {
		ids := b.Field(0).(*array.ListBuilder)
		ids.Append(true)
		for range i * 2 {
			ids.ValueBuilder().(*array.Int64Builder).Append(math.MaxInt64)
		}
		b.Field(1).(*array.Float32Builder).Append([]float32{0.1, float32(math.NaN())}[i])
		b.Field(2).(*array.FixedSizeListBuilder).Append(true)
		b.Field(2).(*array.FixedSizeListBuilder).ValueBuilder().(*array.Float32Builder).AppendValues([]float32{1, -2.5}, nil)
		if city == "" {
			b.Field(3).AppendNull()
			b.Field(8).AppendNull()
		} else {
			b.Field(3).(*array.StringBuilder).Append(city)
			b.Field(8).(*array.BinaryBuilder).Append([]byte("k"))
		}
		b.Field(4).(*array.BinaryBuilder).Append([][]byte{[]byte("u1\n"), {0xff, 0}}[i])
		b.Field(5).(*array.BooleanBuilder).Append(i == 0)
		b.Field(6).(*array.Float32Builder).Append(float32(i))
		b.Field(7).(*array.Float64Builder).Append([]float64{1e300, math.Inf(-1)}[i])
		b.Field(9).(*array.Int64Builder).Append(1_700_000_000_000_000 * int64(i))
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Release()
	for _, without := range []string{"", pipeline.ColKey} {
		e := Encoder{Without: without}
		if err := e.Begin(batch.Record()); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{
			`{"user":[],"age":0.1,"vector":[1,-2.5],"city":"Köln \"am\" Rhein","line_id":"u1\n","flag":true,"label":0,"price":1e+300,"key":"k","time":0}`,
			`{"user":[9223372036854775807,9223372036854775807],"age":null,"vector":[1,-2.5],"city":null,"line_id":{"base64":"/wA="},"flag":false,"label":1,"price":null,"key":null,"time":1700000000000000}`,
		} {
			if without != "" {
				want = regexp.MustCompile(`"key":[^,]*,`).ReplaceAllString(want, "")
			}
			if got := string(e.Append(nil, i)); got != want {
				t.Errorf("row %d\n%s, want\n%s", i, got, want)
			}
		}
	}
}

// TestAppendText: a string is what encoding/json makes of it.
func TestAppendText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "a\tb\u2028", `"q"`, `\`, "<&>", "\x7f", "\x1f", "ü", "日本"} {
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendText([]byte("x"), text); string(got) != "x"+string(want) {
			t.Errorf("%q: %s, want %s", text, got[1:], want)
		}
	}
	if got := AppendText(nil, "\xff\x00"); string(got) != `{"base64":"/wA="}` {
		t.Errorf("%s", got)
	}
}

func TestColumnWithoutForm(t *testing.T) {
	t.Parallel()
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.FixedWidthTypes.Date32}}, nil))
	defer b.Release()
	var e Encoder
	if err := e.Begin(b.NewRecordBatch()); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `"x": date32`) {
		t.Errorf("%v", err)
	}
}

// BenchmarkAppend: batches of 256 rows with 8 ids and 2 numbers; nothing is allocated for a row.
func BenchmarkAppend(b *testing.B) {
	var fields []arrow.Field
	for i := range 8 {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("f", i), Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)})
	}
	fields = append(fields, arrow.Field{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32}, arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64})
	rb := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema(fields, nil))
	defer rb.Release()
	for i := range int64(256) {
		for f := range 8 {
			l := rb.Field(f).(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int64Builder).Append(int64(f)<<48 | i*7919)
		}
		rb.Field(8).(*array.Float32Builder).Append(float32(i % 2))
		rb.Field(9).(*array.Int64Builder).Append(i)
	}
	rec := rb.NewRecordBatch()
	defer rec.Release()
	var e Encoder
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = dst[:0]
		if err := e.Begin(rec); err != nil {
			b.Fatal(err)
		}
		for i := range 256 {
			dst = append(e.Append(dst, i), '\n')
		}
	}
	b.SetBytes(int64(len(dst)))
	b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
