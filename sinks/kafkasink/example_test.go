package kafkasink_test

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// Publish records: nil means that every one is acknowledged.
func ExampleProducer() {
	ctx := context.Background()
	bed, err := broker.Start(broker.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = bed.Close() }()

	opts := kafkasink.Options{Brokers: bed.Addrs(), Topic: "clicks", Codec: "zstd"}
	if err := kafkasink.CreateTopic(ctx, opts, kafkasink.Topic{Partitions: 2}); err != nil {
		fmt.Println(err)
		return
	}
	p, err := kafkasink.NewProducer(opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = p.Close() }()
	err = p.Produce(ctx,
		kafkasink.Record{Key: []byte("alice"), Value: []byte("item 7"), Partition: kafkasink.ByKey},
		kafkasink.Record{Value: []byte("item 9"), Partition: 1},
		kafkasink.Record{Value: []byte("item 2"), Partition: 5},
	)
	fmt.Println(err)
	// Output:
	// kafkasink: 1 records not acknowledged, the first has index 2: topic "clicks" has no partition 5, only 0 to 1: bad configuration
}
