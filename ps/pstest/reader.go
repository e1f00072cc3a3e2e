package pstest

import (
	"context"
	"errors"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// TestReader checks that a reader of shards can look up and read dense tensors, and nothing else.
func TestReader(t *testing.T, open func(ctx context.Context, worker string) (*ps.Client, error), l *param.Layout) {
	t.Helper()
	cl, err := open(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	rows := &param.Rows{}
	for _, spec := range l.Tables {
		rows.Keys, rows.Values = append(rows.Keys, []int64{1, 2, 3}), append(rows.Values, make([]float32, 3*spec.Dim()))
	}
	if err := cl.Lookup(t.Context(), rows); err != nil {
		t.Errorf("Lookup: %v", err)
	}
	if _, err := cl.Dense(t.Context(), 0, make([]float32, l.DenseLen())); err != nil {
		t.Errorf("Dense: %v", err)
	}
	if _, err := cl.Resume(t.Context(), "s", []string{"x"}); !errors.Is(err, ps.ErrReadOnly) {
		t.Errorf("Resume: %v, want ErrReadOnly", err)
	}
	u := &param.Update{Source: "s", Split: "x", To: 1, NumRows: 1, LR: 1}
	if err := cl.Push(t.Context(), u); err == nil {
		t.Error("a reader pushes")
	}
	if _, err := cl.Edit(t.Context(), "request"); !errors.Is(err, ps.ErrReadOnly) {
		t.Errorf("Edit: %v, want ErrReadOnly", err)
	}
	if err := cl.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
