package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// Read a topic up to what it holds now.
func Example() {
	if err := readAll(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// kafka ratings ratings-00000 [0,3)
	// position 1: alice likes 7
	// position 2: bob likes 9
	// position 3: alice likes 2
}

func readAll(ctx context.Context) error {
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"ratings": 1}})
	if err != nil {
		return err
	}
	defer func() { _ = bed.Close() }()
	if err := broker.Produce(ctx, bed.Addrs(), "ratings", 0, broker.Batch{}, broker.Values("alice likes 7", "bob likes 9", "alice likes 2")...); err != nil {
		return err
	}

	src, err := kafkasource.New(kafkasource.Options{
		Brokers: bed.Addrs(), Topic: "ratings", End: kafkasource.Bound{Place: kafkasource.Latest},
	})
	if err != nil {
		return err
	}
	splits, err := src.Splits(ctx)
	if err != nil {
		return err
	}
	for _, split := range splits {
		fmt.Printf("%s %s [%d,%d)\n", src, split.Name, split.Start, split.End)
		r, err := src.Open(ctx, &pipeline.Env{Source: "in"}, split, split.Start)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		for {
			blk, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			for i, at := range blk.Positions() {
				fmt.Printf("position %d: %s\n", at, blk.Payload().Value(i))
			}
			blk.Release()
		}
	}
	return nil
}
