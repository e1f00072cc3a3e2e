package broker_test

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
)

// TestProduceIsOneBatch: records of a topic that the client has not told of are one record batch, and of a size where one is asked for.
func TestProduceIsOneBatch(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"whole": 1, "parts": 1}})
	const records = 2000
	for topic, want := range map[string]struct{ size, batches int }{"whole": {0, 1}, "parts": {600, 4}} {
		if err := broker.Produce(t.Context(), b.Addrs(), topic, 0, broker.Batch{Size: want.size}, make([]broker.Record, records)...); err != nil {
			t.Fatal(err)
		}
		c, err := broker.NewClient(b.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		q := kmsg.NewPtrFetchRequest()
		q.MaxWaitMillis, q.MinBytes, q.MaxBytes = 100, 1, 1<<20
		of := kmsg.NewFetchRequestTopic()
		of.Topic, of.TopicID = topic, b.Cluster.TopicInfo(topic).TopicID
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		of.Partitions = append(of.Partitions, p)
		q.Topics = append(q.Topics, of)
		r, err := q.RequestWith(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for raw := r.Topics[0].Partitions[0].RecordBatches; len(raw) > 12; n++ {
			raw = raw[12+binary.BigEndian.Uint32(raw[8:]):]
		}
		if n != want.batches {
			t.Errorf("%d records of %s are %d batches, want %d", records, topic, n, want.batches)
		}
	}
}
