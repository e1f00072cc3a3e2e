package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

func record(t *testing.T, mem memory.Allocator, positions ...int64) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(mem, pipeline.BlockSchema(false, false))
	defer b.Release()
	for _, p := range positions {
		b.Field(0).(*array.BinaryBuilder).Append([]byte{byte(p)})
		b.Field(1).(*array.Int64Builder).Append(p)
	}
	return b.NewRecordBatch()
}

func TestSliceFollowsPositions(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	// Rows end at 12, 13 and 17; 10, 11 and 14 to 16 were dropped, and so were 18 and 19.
	b, err := pipeline.NewBatch(record(t, mem, 12, 13, 17), pipeline.Origin{Source: "s", Split: "p", From: 10, To: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	for _, c := range []struct {
		from, to int
		want     string
	}{
		{0, 3, "s/p[10,20)"},
		{0, 1, "s/p[10,12)"},
		{1, 2, "s/p[12,13)"},
		{1, 3, "s/p[12,20)"},
		{2, 3, "s/p[13,20)"},
		{0, 0, "s/p[10,10)"},
		{3, 3, "s/p[17,20)"},
		{2, 2, "s/p[13,13)"},
	} {
		got, err := b.Slice(c.from, c.to)
		if err != nil {
			t.Fatalf("Cut(%d, %d): %v", c.from, c.to, err)
		}
		if got.Origin().String() != c.want || got.NumRows() != c.to-c.from {
			t.Errorf("Cut(%d, %d) is %v with %d rows, want %s", c.from, c.to, got.Origin(), got.NumRows(), c.want)
		}
		got.Release()
	}
	for _, c := range [][2]int{{-1, 2}, {0, 4}, {2, 1}} {
		if _, err := b.Slice(c[0], c[1]); !errors.Is(err, pipeline.ErrSchema) {
			t.Errorf("Cut(%d, %d): %v, want ErrSchema", c[0], c[1], err)
		}
	}
}

func TestBlocksAreChecked(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	origin := pipeline.Origin{From: 5, To: 9}
	for name, positions := range map[string][]int64{"before": {5, 6}, "behind": {6, 10}} {
		rec := record(t, mem, positions...)
		if _, err := pipeline.NewBlock(rec, origin); !errors.Is(err, pipeline.ErrSchema) {
			t.Errorf("%s: %v, want ErrSchema", name, err)
		}
		rec.Release()
	}
	b, err := pipeline.NewBlock(record(t, mem, 6, 9), origin)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{6, 9}, b.Positions()); diff != "" || b.Payload().Value(1)[0] != 9 || b.Column("nothing") != nil {
		t.Errorf("positions %v, payload %v", b.Positions(), b.Payload())
	}
	b.Release()
}

func TestPositionsOfEpochs(t *testing.T) {
	p := position.AtEpoch(3, 17)
	if epoch, at := p.Epoch(); epoch != 3 || at != 17 || p >= position.AtEpoch(4, 0) || p <= position.AtEpoch(3, 16) {
		t.Errorf("AtEpoch(3, 17) = %d is epoch %d at %d", p, epoch, at)
	}
	defer func() {
		if recover() == nil {
			t.Error("AtEpoch(-1, 0) did not panic")
		}
	}()
	position.AtEpoch(-1, 0)
}

func TestOriginsJoin(t *testing.T) {
	a := pipeline.Origin{From: 1, To: 2}
	b := pipeline.Origin{From: 2, To: 3, MinTime: 7, MaxTime: 9}
	c := pipeline.Origin{From: 3, To: 4, MinTime: 5, MaxTime: 8}
	if diff := cmp.Diff(pipeline.Origin{From: 1, To: 4, MinTime: 5, MaxTime: 9}, a.Join(b).Join(c)); diff != "" {
		t.Error(diff)
	}
}

func TestBadRowPolicies(t *testing.T) {
	bad := &pipeline.DataError{Source: "s", Split: "p", Position: 12, Reason: "crc mismatch", Err: errBroken}
	if want := "s/p position 12: crc mismatch: broken"; bad.Error() != want {
		t.Errorf("the error reads %q, want %q", bad, want)
	}
	env := &pipeline.Env{}
	if err := env.BadRow(t.Context(), bad, nil); !errors.Is(err, pipeline.ErrBadData) || !errors.Is(err, errBroken) {
		t.Errorf("the zero Env fails with %v", err)
	}
	var dropped []string
	skip := &pipeline.SkipBadRows{}
	env = &pipeline.Env{BadRows: skip, Hooks: pipeline.NewHooks(&dropHooks{into: &dropped})}
	if err := errors.Join(env.BadRow(t.Context(), bad, nil), env.BadRow(t.Context(), bad, nil)); err != nil {
		t.Errorf("skip fails with %v", err)
	}
	if diff := cmp.Diff(map[string]int64{"crc mismatch": 2}, skip.Counts()); diff != "" || strings.Join(dropped, " ") != "s:crc mismatch s:crc mismatch" {
		t.Errorf("counts %s, hooks %q", diff, dropped)
	}
}

type dropHooks struct {
	into *[]string
}

func (h *dropHooks) RowDropped(source, reason string, _ int64) {
	*h.into = append(*h.into, source+":"+reason)
}

func TestResourceOfAnotherTypeIsAnError(t *testing.T) {
	env := &pipeline.Env{}
	var closed []string
	if _, err := pipeline.Resource(t.Context(), env, 1, func(context.Context) (closer, error) { return closer{"a", &closed}, nil }); err != nil {
		t.Fatal(err)
	}
	_, err := pipeline.Resource(t.Context(), env, 1, func(context.Context) (*closer, error) { return nil, nil })
	if !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("got %v", err)
	}
	if err := env.CloseResources(); err != nil {
		t.Fatal(err)
	}
}
