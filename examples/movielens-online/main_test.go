package main

import (
	"log/slog"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestRealDataMovieLensOnline runs the example. Vowpal Wabbit 9.11.9's logistic regression on the same rows has an AUC of
// .804 learning on and .788 frozen; ours must not be worse, and learning on must pay.
func TestRealDataMovieLensOnline(t *testing.T) {
	data := testbed.Data(t, ".")
	testbed.Data(t, "datasets/ml1m-bin")
	r, err := run(t.Context(), options{data: data, dir: t.TempDir(), jobs: ".", log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	frozen, online := r.frozen.Metrics["auc"], r.online.Metrics["progressive_auc"]
	t.Logf("history %.4f, frozen %.4f, online %.4f", r.history.Metrics["progressive_auc"], frozen, online)
	if r.history.Examples != 800_141 || r.frozen.Examples != 23_636 || r.online.Examples != 23_636 {
		t.Errorf("%d, %d and %d examples, want 800141, 23636 and 23636", r.history.Examples, r.frozen.Examples, r.online.Examples)
	}
	if frozen < 0.788 || online < 0.804 || online <= frozen {
		t.Errorf("frozen AUC %.4f, want .788; online %.4f, want .804 and more than frozen", frozen, online)
	}
}
