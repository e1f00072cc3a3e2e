package kafkasource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// stored plays what keeps positions and memories over the ends of processes.
type stored struct {
	at     pipeline.Position
	memory map[string]string
}

func (s *stored) env() *pipeline.Env {
	return &pipeline.Env{Memory: func(split pipeline.SplitID, memory string) { s.memory[split.Split] = memory }}
}

// recalled lists the splits as a process finds them, with what was stored, and stores what is new.
func (s *stored) recalled(t testing.TB, src *kafkasource.Source) []pipeline.Split {
	t.Helper()
	out, err := src.Recall(splits(t, src), s.memory)
	if err != nil {
		t.Fatal(err)
	}
	for _, split := range out {
		s.memory[split.Name] = split.Memory
	}
	return out
}

func newStored() *stored { return &stored{pipeline.NoPosition, map[string]string{}} }

// TestStartIsRemembered: where the end was when a split was first taken up is where it begins, also later; and a partition
// that is added begins with its first record.
func TestStartIsRemembered(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 2}})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("old", 5)...)
	o := options(b.Addrs()...)
	o.Start.Place = kafkasource.Latest
	st := newStored()
	if got := st.recalled(t, source(t, o)); got[0].Start != 5 || got[1].Start != 0 {
		t.Fatalf("%+v", got)
	}
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("new", 3)...)
	if err := b.AddPartitions(t.Context(), "ratings", 4); err != nil {
		t.Fatal(err)
	}
	produce(t, b, "ratings", 2, broker.Batch{}, numbered("added", 4)...)
	produce(t, b, "ratings", 3, broker.Batch{}, numbered("too", 2)...)
	s := source(t, o) // the next process
	// One worker takes up some of the new ones, another the rest.
	taken, err := s.Recall(splits(t, s)[2:3], st.memory)
	if err != nil || taken[0].Start != 0 {
		t.Fatalf("%+v, %v", taken, err)
	}
	st.memory[taken[0].Name] = taken[0].Memory
	got := st.recalled(t, s)
	if len(got) != 4 || got[3].Start != 0 {
		t.Fatalf("%+v", got)
	}
	got = got[:3]
	if len(got) != 3 || got[0].Start != 5 || got[1].Start != 0 || got[2].Start != 0 {
		t.Fatalf("%+v", got)
	}
	if v := values(openSplit(t, s, got[0], got[0].Start, st.env()).take(t, 3)); v != "new0 new1 new2" {
		t.Error(v)
	}
	if err := b.DeleteRecords("ratings", 2, 1); err != nil { // so much retention may do before it is read
		t.Fatal(err)
	}
	if v := values(openSplit(t, s, got[2], got[2].Start, st.env()).take(t, 3)); v != "added1 added2 added3" {
		t.Error(v)
	}
	if again := st.recalled(t, s); again[2].Start != 0 {
		t.Errorf("%+v", again)
	}
}

// TestAcknowledgeOfATopicThatIsNoMore: a consumer group belongs to a name. Positions in a topic that was deleted are not committed to the group of
// the one that has its name now, whichever versions brokers speak; and the error does not say that they lie outside of it.
func TestAcknowledgeOfATopicThatIsNoMore(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*kversion.Versions{"2.8": kversion.V2_8_0(), "3.1": kversion.V3_1_0(), "newest": kversion.Stable()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{MaxVersions: v})
			produce(t, b, "ratings", 0, broker.Batch{}, numbered("old", 10)...)
			o := options(b.Addrs()...)
			o.GroupID = "lag"
			s, st := source(t, o), newStored()
			memory := st.recalled(t, s)[0].Memory
			stored := map[string]pipeline.StoredSplit{"ratings-00000": {Position: 10, Memory: memory}}
			if err := s.Acknowledge(t.Context(), stored); err != nil || b.Cluster.GroupInfo("lag").Commits["ratings"][0].Offset != 10 {
				t.Fatalf("%v, %+v", err, b.Cluster.GroupInfo("lag"))
			}
			if err := errors.Join(b.DeleteTopic("ratings"), b.CreateTopic("ratings", 1, nil)); err != nil {
				t.Fatal(err)
			}
			produce(t, b, "ratings", 0, broker.Batch{}, numbered("new", 50)...)
			splits(t, s) // looking for new partitions, which lists the new topic
			err := s.Acknowledge(t.Context(), stored)
			gap, ok := errors.AsType[*pipeline.GapError](err)
			if !ok || !strings.Contains(err.Error(), "re-created, so position 10 counts other records") || strings.Contains(err.Error(), "outside") {
				t.Errorf("%v, %+v", err, gap)
			}
			if g := b.Cluster.GroupInfo("lag"); g != nil && len(g.Commits["ratings"]) > 0 {
				t.Errorf("committed to the new topic: %+v", g.Commits)
			}
		})
	}
}

// TestRecreatedBetweenRuns: a topic is deleted and re-created while nobody reads; positions and memories are stored.
func TestRecreatedBetweenRuns(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("old", 10)...)
	o := options(b.Addrs()...)
	s, st := source(t, o), newStored()
	r := openSplit(t, s, st.recalled(t, s)[0], 0, st.env())
	r.take(t, 10)
	at := r.Position()
	if err := errors.Join(b.DeleteTopic("ratings"), b.CreateTopic("ratings", 1, nil)); err != nil {
		t.Fatal(err)
	}
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("new", 15)...)
	s = source(t, o)
	_, err := s.Recall(splits(t, s), st.memory)
	var gap *pipeline.GapError
	if !errors.As(err, &gap) || gap.Want != at || !strings.Contains(gap.Other, "re-created") || !strings.Contains(gap.Hint, "source.kafka.name") {
		t.Fatalf("%v", err)
	}
	// Also when it happens between Recall and Open.
	split := splits(t, s)[0]
	split.Memory = st.memory[split.Name]
	if _, err := s.Open(t.Context(), nil, split, at); !errors.As(err, &gap) || !strings.Contains(gap.Other, "re-created") {
		t.Errorf("%v", err)
	}
	// What the message says to do.
	o.Name = "ratings-2"
	s = source(t, o)
	again := st.recalled(t, s)[0]
	if again.Name != "ratings-2-00000" || again.Start != 0 {
		t.Errorf("%+v", again)
	}
	if v := values(openSplit(t, s, again, 0, st.env()).take(t, 2)); !strings.HasPrefix(v, "new0 new1 ") {
		t.Error(v)
	}
}

// TestTopicOfAnotherCluster: a topic of the same name on another cluster is another one.
func TestTopicOfAnotherCluster(t *testing.T) {
	t.Parallel()
	one, other := start(t, broker.Options{ClusterID: "one"}), start(t, broker.Options{ClusterID: "other"})
	produce(t, one, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
	produce(t, other, "ratings", 0, broker.Batch{}, numbered("b", 9)...)
	st := newStored()
	split := st.recalled(t, source(t, options(one.Addrs()...)))[0]
	s := source(t, options(other.Addrs()...))
	for what, err := range map[string]error{
		"recall": func() error { _, err := s.Recall(splits(t, s), st.memory); return err }(),
		"open":   func() error { _, err := s.Open(t.Context(), nil, split, 3); return err }(),
	} {
		var gap *pipeline.GapError
		if !errors.As(err, &gap) || !strings.Contains(err.Error(), "cluster one") || !strings.Contains(err.Error(), "cluster other") || !strings.Contains(err.Error(), "source.kafka.name") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCutBackBetweenRuns: an unclean election takes records that parameters know, and others fill their places.
func TestCutBackBetweenRuns(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 10)...)
	s, st := source(t, options(b.Addrs()...)), newStored()
	r := openSplit(t, s, st.recalled(t, s)[0], 0, st.env())
	r.take(t, 10)
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("b", 10)...)
	split := st.recalled(t, s)[0]
	var end int64
	b.Cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster.KeepControl()
		r := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = "ratings"
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.EndOffset = end
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
		return r, nil, true
	})
	for _, c := range []struct {
		end, from int64
		truncated bool
	}{
		{10, 10, false}, {20, 10, false}, {-1, 10, false}, // whole; whole; the broker does not know
		{7, 10, true}, {7, 8, true}, {7, 7, false}, {7, 5, false}, // what is not applied yet is no loss
		{7, 15, true}, {12, 15, false}, // a position from a log may be ahead of what is remembered
	} {
		end = c.end
		r, err := s.Open(t.Context(), nil, split, pipeline.Position(c.from))
		var gap *pipeline.GapError
		if truncated := errors.As(err, &gap) && strings.Contains(gap.Other, "truncated to offset 7"); truncated != c.truncated || err != nil && !truncated {
			t.Errorf("epoch ends at %d, continuing at %d: %v", c.end, c.from, err)
		}
		if err == nil {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRecallRefuses: what is stored may be anything.
func TestRecallRefuses(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	s := source(t, options(b.Addrs()...))
	for _, text := range []string{"x", `{"start":-1}`, "[]", `{"start":"a"}`} {
		if _, err := s.Recall(splits(t, s), map[string]string{"ratings-00000": text}); err == nil || !strings.Contains(err.Error(), "ratings-00000") {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Of other sources nothing is looked at.
	if _, err := s.Recall(splits(t, s), map[string]string{"clicks-00000": "x"}); err != nil {
		t.Error(err)
	}
}

func FuzzRecall(f *testing.F) {
	s, err := kafkasource.New(kafkasource.Options{Brokers: []string{"b:1"}, Topic: "t"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"cluster":"c","topic_id":"00","start":3,"partitions":4,"leader_epoch":5,"at":9}`)
	f.Add(`{"start":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.Recall([]pipeline.Split{{Name: "t-00000", End: pipeline.NoPosition}}, map[string]string{"t-00000": text})
		if err == nil && (len(got) != 1 || got[0].Start < 0) {
			t.Errorf("%+v", got)
		}
	})
}
