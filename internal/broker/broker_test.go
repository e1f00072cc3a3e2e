package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/broker"
)

func start(t *testing.T, o broker.Options) *broker.Broker {
	t.Helper()
	b, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// read returns the values of n committed records of partition 0, with their offsets.
func read(t *testing.T, b *broker.Broker, topic string, n int) []string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out []string
	for len(out) < n {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d of %d: %v", len(out), n, err)
		}
		f.EachRecord(func(r *kgo.Record) { out = append(out, fmt.Sprintf("%d:%s=%s", r.Offset, r.Key, r.Value)) })
	}
	return out
}

// TestDirKeepsEverything: records, the log's start, topics and transactions are there again on the same address.
func TestDirKeepsEverything(t *testing.T) {
	t.Parallel()
	o := broker.Options{Dir: t.TempDir(), Topics: map[string]int{"a": 1}, Sync: true}
	b := start(t, o)
	p, err := broker.NewProducer(b.Addrs(), "tx")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i, commit := range []bool{true, false, true} {
		err := p.Begin()
		if err == nil {
			err = p.Produce(t.Context(), "a", 0, broker.Values(fmt.Sprintf("tx%d", i))...)
		}
		if err == nil {
			err = p.End(t.Context(), commit)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := broker.Produce(t.Context(), b.Addrs(), "a", 0, broker.Batch{Codec: "gzip", Size: 1}, broker.Record{Key: []byte("k"), Value: []byte("x")}, broker.Record{Value: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	want := []string{"0:=tx0", "4:=tx2", "6:k=x", "7:=y"}
	if diff := cmp.Diff(want, read(t, b, "a", 4)); diff != "" {
		t.Error(diff)
	}
	if err := b.DeleteRecords("a", 0, 4); err != nil {
		t.Fatal(err)
	}
	addr := b.Addrs()[0]
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.Addrs()[0]; got != addr {
		t.Errorf("moved from %s to %s", addr, got)
	}
	if diff := cmp.Diff(want[1:], read(t, b, "a", 3)); diff != "" {
		t.Errorf("after the restart: %s", diff)
	}
}

func TestTopicsComeAndGo(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"a": 3}})
	if err := b.CreateTopic("a", 1, nil); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("created twice: %v", err)
	}
	before := b.Cluster.TopicInfo("a").TopicID
	if err := b.DeleteTopic("a"); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic("a"); err == nil {
		t.Error("deleted twice")
	}
	if err := b.CreateTopic("a", 1, nil); err != nil {
		t.Fatal(err)
	}
	if b.Cluster.TopicInfo("a").TopicID == before {
		t.Error("the new topic has the old one's id")
	}
	if err := b.DeleteRecords("none", 0, 0); err == nil {
		t.Error("records of no topic")
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	var port int
	if _, err := fmt.Sscanf(b.Addrs()[0], "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Start(broker.Options{Port: port}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Errorf("a port in use: %v", err)
	}
	if err := broker.Produce(t.Context(), b.Addrs(), "a", 0, broker.Batch{Codec: "rar"}); err == nil {
		t.Error("codec rar")
	}
}
