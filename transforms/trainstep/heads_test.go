package trainstep_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// TestScoreOfHeads compares the labels, masks and keys of two heads with the rows that the batch was made of, row by row.
func TestScoreOfHeads(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m, err := zoo.New(zoo.Config{
		Name: zoo.SharedBottom, Dim: 2, Hidden: []int{3}, Seed: 1, Features: []zoo.Feature{{Name: "item"}},
		Heads: []model.Head{
			{Name: "click", Loss: loss.CrossEntropy, Labels: []string{pipeline.LabelColumn("click")}},
			{Name: "seconds", Loss: loss.Squared, Labels: []string{pipeline.LabelColumn("seconds")}, Mask: pipeline.MaskColumn("seconds")},
			{Name: "order", Loss: loss.BPR, Labels: []string{pipeline.LabelColumn("click")}, Group: pipeline.KeyColumn("user")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 7
	label := func(i int) (click, seconds float32, has bool, user string) {
		return float32(i % 2), float32(10 * i), i%3 != 0, fmt.Sprint("u", i%4)
	}
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{
		{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: pipeline.LabelColumn("click"), Type: arrow.PrimitiveTypes.Float32},
		{Name: pipeline.LabelColumn("seconds"), Type: arrow.PrimitiveTypes.Float32},
		{Name: pipeline.MaskColumn("seconds"), Type: arrow.FixedWidthTypes.Boolean},
		{Name: pipeline.KeyColumn("user"), Type: arrow.BinaryTypes.Binary},
		{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}, nil))
	for i := range rows {
		click, seconds, has, user := label(i)
		items := b.Field(0).(*array.ListBuilder)
		items.Append(true)
		items.ValueBuilder().(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Float32Builder).Append(click)
		b.Field(2).(*array.Float32Builder).Append(seconds)
		b.Field(3).(*array.BooleanBuilder).Append(has)
		b.Field(4).(*array.BinaryBuilder).Append([]byte(user))
		b.Field(5).(*array.Int64Builder).Append(int64(i + 1))
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "test", Split: "s", To: rows})
	b.Release()
	if err != nil {
		t.Fatal(err)
	}
	store := newMapStore(m.Layout())
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	score, err := trainstep.NewScore(m, store.open, 1, "user").Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := look.Process(t.Context(), batch, func(p *trainstep.Prepared) error {
		if groups := p.Inputs().Groups; len(groups) != 3 || groups[0] != nil || groups[1] != nil || !slices.Equal(groups[2], []int32{0, 1, 2, 3, 0, 1, 2}) {
			t.Errorf("groups %v", groups)
		}
		return score.Process(t.Context(), p, func(s *trainstep.Scored) error {
			defer s.Release()
			got := s.Scores()
			if got.Rows != rows || len(got.Heads) != 3 || len(got.Keys) != 1 || got.Heads[0].Mask != nil || len(got.Heads[1].Mask) != rows {
				t.Fatalf("got %+v", got)
			}
			for i := range rows {
				click, seconds, has, user := label(i)
				if got.Heads[0].Labels[i] != click || got.Heads[1].Mask[i] != has || has && got.Heads[1].Labels[i] != seconds || string(got.Keys[0].Value(i)) != user {
					t.Errorf("row %d: got %+v", i, got)
				}
				// No row of the table and no bias has been trained: all outputs are 0.
				if got.Heads[0].Predictions[i] != 0.5 || got.Heads[1].Predictions[i] != 0 {
					t.Errorf("row %d: predictions %v and %v, want .5 and 0", i, got.Heads[0].Predictions[i], got.Heads[1].Predictions[i])
				}
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := look.Close(); err != nil {
		t.Error(err)
	}
	if err := score.Close(); err != nil {
		t.Error(err)
	}
}
