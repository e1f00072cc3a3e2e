package kafkasource_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// TestTimesAreOffsets: a time is the first record of that time or a later one, wherever times do not ascend, and the end of the log where
// there is none.
func TestTimesAreOffsets(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	times := []int64{100, 100, 200, 150, 300, 250, 400} // in milliseconds
	for _, batch := range []int{1, 3, len(times)} {
		name := fmt.Sprintf("batches-of-%d", batch)
		if err := b.CreateTopic(name, 1, nil); err != nil {
			t.Fatal(err)
		}
		var records []broker.Record
		for _, at := range times {
			records = append(records, broker.Record{Value: []byte("x"), Time: time.UnixMilli(at)})
		}
		produce(t, b, name, 0, broker.Batch{Size: batch}, records...)
		for _, at := range []int64{0, 100, 101, 150, 151, 200, 201, 300, 301, 400, 401} {
			// The slow answer: look at each.
			want := slices.IndexFunc(times, func(t int64) bool { return t >= at })
			if want < 0 {
				want = len(times)
			}
			o := options(b.Addrs()...)
			o.Topic = name
			o.Start = kafkasource.Bound{Time: time.UnixMilli(at)}
			if got := splits(t, source(t, o))[0].Start; got != pipeline.Position(want) {
				t.Errorf("%s: %d ms is offset %d, want %d", name, at, got, want)
			}
			o.Start, o.End = kafkasource.Bound{}, kafkasource.Bound{Time: time.UnixMilli(at)}
			s := source(t, o)
			if got := splits(t, s)[0].End; got != pipeline.Position(want) || !s.Bounded() {
				t.Errorf("%s: up to %d ms ends at %d, want %d", name, at, got, want)
			}
		}
	}
}

// TestATimeIsAPlace: what retention removes after a time was looked up is a gap, also for a reader that starts elsewhere by its own
// options, and no more than lost where the place was the oldest record.
func TestATimeIsAPlace(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 10}, numbered("a", 100)...)
	o := options(b.Addrs()...)
	o.Start = kafkasource.Bound{Time: time.UnixMilli(1)}
	was := splits(t, source(t, o))
	o.Start = kafkasource.Bound{}
	usual := source(t, o)
	now := splits(t, usual)
	oldest := now[0].Memory
	if err := b.DeleteRecords("ratings", 0, 30); err != nil {
		t.Fatal(err)
	}
	for memory, gap := range map[string]bool{was[0].Memory: true, oldest: false} {
		recalled, err := usual.Recall(splits(t, usual), map[string]string{now[0].Name: memory})
		if err != nil {
			t.Fatal(err)
		}
		r, err := usual.Open(t.Context(), nil, recalled[0], recalled[0].Start)
		if err == nil {
			err = r.Close()
		}
		var g *pipeline.GapError
		if errors.As(err, &g) != gap || gap && (g.Want != 0 || g.First != 30) {
			t.Errorf("%s: error %v, want a gap: %v", memory, err, gap)
		}
	}
}
