package wal_test

import (
	"context"
	"fmt"
	"os"

	"github.com/monolith-go/monolith/ps/wal"
)

// A shard that counts: its snapshot is a number, and its log the steps since.
func Example() {
	dir, err := os.MkdirTemp("", "wal")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	opts := wal.Options{Dir: dir, Identity: "1 shard"}

	run := func(steps ...byte) error {
		l, err := wal.Open(opts)
		if err != nil {
			return err
		}
		s := l.Shard(0)
		sum := 0
		tail, err := s.Replay(ctx, 0, func(_ byte, payload []byte) error {
			sum += int(payload[0])
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Println("came back with", sum, "after", tail.Records, "records")
		if err := s.Begin(); err != nil {
			return err
		}
		for _, step := range steps {
			lsn, err := s.Append('+', []byte{step})
			if err != nil {
				return err
			}
			if err := s.Wait(ctx, lsn); err != nil {
				return err
			}
		}
		return l.Close()
	}
	for _, steps := range [][]byte{{1, 2, 3}, {4}, nil} {
		if err := run(steps...); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// came back with 0 after 0 records
	// came back with 6 after 3 records
	// came back with 10 after 4 records
}
