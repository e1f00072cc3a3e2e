package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 3}})
	produce(t, b, "ratings", 0, broker.Batch{Size: 9}, numbered("a", 50)...)
	produce(t, b, "ratings", 1, broker.Batch{Size: 4, Codec: "lz4"}, numbered("b", 21)...)
	for _, c := range []struct {
		name string
		end  kafkasource.Bound
	}{{"bounded", kafkasource.Bound{Place: kafkasource.Latest}}, {"unbounded", kafkasource.Bound{}}} {
		t.Run(c.name, func(t *testing.T) {
			pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
				New: func(t *testing.T) pipeline.Source[*pipeline.Block] {
					o := options(b.Addrs()...)
					o.End, o.MaxRows = c.end, 5
					return source(t, o)
				},
				Rows: map[string]int{"ratings-00000": 50, "ratings-00001": 21, "ratings-00002": 0},
			})
		})
	}
}

func TestSplits(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 12}, Brokers: 3})
	produce(t, b, "ratings", 3, broker.Batch{}, numbered("a", 5)...)
	produce(t, b, "ratings", 10, broker.Batch{}, numbered("a", 8)...)
	if err := b.DeleteRecords("ratings", 10, 2); err != nil {
		t.Fatal(err)
	}
	all := make([]pipeline.Split, 12)
	for i := range all {
		all[i] = pipeline.Split{Name: fmt.Sprintf("ratings-%05d", i), End: pipeline.NoPosition}
	}
	all[10].Start = 2
	o := options(b.Addrs()...)
	if diff := cmp.Diff(all, places(splits(t, source(t, o)))); diff != "" {
		t.Errorf("earliest: %s", diff)
	}
	o.Partitions = []int{10, 3}
	o.Start.Place = kafkasource.Latest
	want := []pipeline.Split{{Name: "ratings-00003", Start: 5, End: pipeline.NoPosition}, {Name: "ratings-00010", Start: 8, End: pipeline.NoPosition}}
	if diff := cmp.Diff(want, places(splits(t, source(t, o)))); diff != "" {
		t.Errorf("latest of two: %s", diff)
	}
	o.Start = kafkasource.Bound{Offsets: map[int]int64{3: 4}}
	o.End = kafkasource.Bound{Place: kafkasource.Latest, Offsets: map[int]int64{10: 7}}
	want = []pipeline.Split{{Name: "ratings-00003", Start: 4, End: 5}, {Name: "ratings-00010", Start: 2, End: 7}}
	s := source(t, o)
	if diff := cmp.Diff(want, places(splits(t, s))); diff != "" {
		t.Errorf("mixed: %s", diff)
	}
	if !s.Bounded() || s.String() != "kafka ratings" {
		t.Errorf("bounded %v, %q", s.Bounded(), s)
	}
}

func TestSplitsRefuse(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 2, "clicks": 1, "__hidden": 1}})
	for _, c := range []struct {
		name   string
		change func(*kafkasource.Options)
		want   string
	}{
		{"similar topic", func(o *kafkasource.Options) { o.Topic = "ratngs" }, `did you mean "ratings"?`},
		{"no similar topic", func(o *kafkasource.Options) { o.Topic = "impressions-of-users" }, `nor any with a similar name`},
		{"partition", func(o *kafkasource.Options) { o.Partitions = []int{0, 2} }, "no partition 2, only 0 to 1"},
		{"end of one", func(o *kafkasource.Options) { o.End.Offsets = map[int]int64{0: 5} }, "no end for partition 1"},
		{"offset of a stranger", func(o *kafkasource.Options) { o.Start.Offsets = map[int]int64{7: 5} }, "partition 7, which is not read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(b.Addrs()...)
			c.change(&o)
			_, err := source(t, o).Splits(t.Context())
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	s := source(t, options(b.Addrs()...))
	for _, name := range []string{"clicks-00000", "ratings-0", "ratings-00009", "ratings", "ratings--0001"} {
		_, err := s.Open(t.Context(), nil, pipeline.Split{Name: name, End: pipeline.NoPosition}, 0)
		if !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("split %q: %v", name, err)
		}
	}
	if _, err := s.Open(t.Context(), nil, splits(t, s)[0], -1); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("position -1: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Open(ctx, nil, splits(t, s)[0], 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := kafkasource.New(kafkasource.Options{
		Brokers: []string{"localhost", "a:b"}, Topic: "a b", Partitions: []int{1, 1},
		Start: kafkasource.Bound{Place: "middle"}, End: kafkasource.Bound{Place: "earliest", Offsets: map[int]int64{0: -1}},
		Isolation: "serializable", OnGap: "ignore", MaxBytes: -1, MaxWait: time.Nanosecond,
		TLS: &kafkasource.TLS{Cert: "c.pem"}, SASL: &kafkasource.SASL{Mechanism: "kerberos"},
	})
	if !errors.Is(err, pipeline.ErrConfig) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`broker "localhost"`, `broker "a:b"`, `"a b" is no topic`, "partition 1 is", `kafka.start "middle"`, `kafka.end "earliest"`, "kafka.end of partition 0",
		`isolation "serializable"`, `on_gap "ignore"`, "max_bytes is -1", "max_wait is 1ns", "cert and key", `"kerberos"`, "sasl.user", "not 0",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in:\n%v", want, err)
		}
	}
	if _, err := kafkasource.New(kafkasource.Options{Brokers: []string{"b:1"}, Topic: "t"}); err != nil {
		t.Errorf("the least there is: %v", err)
	}
}

// TestOldBrokers reads from brokers that know neither topic ids nor the newest fetch layout.
func TestOldBrokers(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*kversion.Versions{
		"1.0": kversion.V1_0_0(), "2.0": kversion.V2_0_0(), "2.8": kversion.V2_8_0(), "3.0": kversion.V3_0_0(), "3.1": kversion.V3_1_0(), "newest": kversion.Stable(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{MaxVersions: v})
			p := producer(t, b.Addrs(), "tx")
			yes, no := true, false
			transaction(t, p, "ratings", "a", 2, &yes)
			transaction(t, p, "ratings", "b", 2, &no)
			transaction(t, p, "ratings", "c", 2, &yes)
			o := options(b.Addrs()...)
			o.End.Place, o.GroupID = kafkasource.Latest, "lag"
			s := source(t, o)
			r := open(t, s, pipeline.NoPosition, nil)
			if got := values(r.take(t, -1)); got != "a0 a1 c0 c1" {
				t.Error(got)
			}
			if err := s.Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"ratings-00000": {Position: r.Position()}}); err != nil {
				t.Error(err)
			}
			_, err := s.Open(t.Context(), &pipeline.Env{Source: "in"}, splits(t, s)[0], 100)
			wantGap(t, err, 100, 0, 9, "re-created")
		})
	}
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 2}})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 10)...)
	o := options(b.Addrs()...)
	o.GroupID = "trainer"
	s := source(t, o)
	r := open(t, s, pipeline.NoPosition, nil)
	r.take(t, 10)
	if g := b.Cluster.GroupInfo("trainer"); g != nil {
		t.Errorf("reading alone made %+v", g)
	}
	if err := s.Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"ratings-00000": {Position: 7}, "ratings-00001": {Position: pipeline.NoPosition}}); err != nil {
		t.Fatal(err)
	}
	g := b.Cluster.GroupInfo("trainer")
	if g == nil {
		t.Fatal("no group")
	}
	got := map[string]int64{}
	for topic, parts := range g.Commits {
		for p, c := range parts {
			got[fmt.Sprintf("%s/%d", topic, p)] = c.Offset
		}
	}
	if diff := cmp.Diff(map[string]int64{"ratings/0": 7}, got); diff != "" {
		t.Error(diff)
	}
	// The group is never read back.
	if again := open(t, s, pipeline.NoPosition, nil).take(t, 1); again[0].Value != "a0" {
		t.Errorf("begins at %q", again[0].Value)
	}
	// A job whose topic was changed still has positions of the one before.
	if err := s.Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"clicks-00000": {Position: 70}, "ratings-00000": {Position: 9}}); err != nil {
		t.Errorf("with a split of another topic: %v", err)
	}
	if at := b.Cluster.GroupInfo("trainer").Commits["ratings"][0].Offset; at != 9 {
		t.Errorf("offset %d, want 9", at)
	}
	o.GroupID = ""
	if err := source(t, o).Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"ratings-00000": {Position: 7}}); err != nil {
		t.Errorf("without a group: %v", err)
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []kafkasource.SASL{
		{Mechanism: kafkasource.Plain, User: "u", Password: "s3cret"},
		{Mechanism: kafkasource.Plain, User: "u", PasswordFile: file},
		{Mechanism: kafkasource.Plain, User: "u", PasswordEnv: "KAFKA_PASSWORD"},
	} {
		o := kafkasource.Options{Brokers: []string{"b:1"}, Topic: "t", SASL: &s}
		text, err := s.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v", s, s, s), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o), string(text), source(t, o).String()} {
			if strings.Contains(shown, "s3cret") {
				t.Errorf("shown: %s", shown)
			}
		}
	}
}
