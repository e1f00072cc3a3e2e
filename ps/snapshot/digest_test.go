package snapshot_test

import (
	"testing"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestDigestOfATrace: what the heads are called is not in the digest, what was predicted is.
func TestDigestOfATrace(t *testing.T) {
	t.Parallel()
	digest := func(head string, prediction float32) string {
		e, err := score.NewEncoder(score.Schema{Heads: []score.HeadSchema{{Name: head, Width: 1, NumLabels: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		var d snapshot.Digest
		d.State("trace", e.Append(nil, &score.Batch{Rows: 1, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: []float32{prediction}, Labels: []float32{1}}}}))
		return d.String()
	}
	// The digest of the 12 bytes of the record alone.
	var plain snapshot.Digest
	plain.State("trace", []byte{0, 0, 0, 0x3f, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f})
	if got := digest("a", 0.5); got != digest("another", 0.5) || got != plain.String() {
		t.Errorf("%s, under another name %s, of the record %s", got, digest("another", 0.5), plain.String())
	}
	if digest("a", 0.5) == digest("a", 0.25) {
		t.Error("two predictions have one digest")
	}
}
