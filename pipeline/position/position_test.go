package position_test

import (
	"testing"

	"github.com/monolith-go/monolith/pipeline/position"
)

// TestText: messages say the epoch of a position, from the second on.
func TestText(t *testing.T) {
	t.Parallel()
	for p, want := range map[position.Position]string{
		position.None: "-1", 0: "0", 27497: "27497", position.AtEpoch(1, 0): "0 of epoch 2", position.AtEpoch(2, 27497): "27497 of epoch 3",
	} {
		if got := p.Text(); got != want {
			t.Errorf("%d: %q, want %q", int64(p), got, want)
		}
	}
}
