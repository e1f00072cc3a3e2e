package coordinator_test

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// A worker takes over a split, looks rows up, pushes gradients and finds on what it has done.
func ExampleOpen() {
	ctx := context.Background()
	layout := &param.Layout{Tables: []param.Table{{Name: "user", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Init: param.Constant(1), Optimizer: optim.SGD{LR: 0.5}},
	}}}}
	cluster, err := coordinator.Open(ctx, coordinator.Options{Layout: layout, NumShards: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := cluster.Client(ctx, "worker-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	from, err := client.Resume(ctx, "clicks", []string{"0"})
	fmt.Println("read on from", from["0"].Position, err)

	err = client.Push(ctx, &param.Update{
		Source: "clicks", Split: "0", From: 0, To: 3, NumRows: 3, LR: 1,
		Keys: [][]int64{{7, 8}}, Counts: [][]uint32{{2, 1}}, Grads: [][]float32{{1, -1}},
	})
	fmt.Println("pushed", err)

	rows := &param.Rows{Keys: [][]int64{{7, 8, 9}}, Values: [][]float32{make([]float32, 3)}}
	err = client.Lookup(ctx, rows)
	stats, statsErr := cluster.Stats(ctx)
	fmt.Println(rows.Values[0], err, "rows:", stats.Rows(), statsErr)
	progress, err := cluster.Progress(ctx, "clicks")
	fmt.Println(progress["0"].Position, err, client.Close(), cluster.Close(ctx))
	// Output:
	// read on from -1 <nil>
	// pushed <nil>
	// [0.5 1.5 1] <nil> rows: 2 <nil>
	// 3 <nil> <nil> <nil>
}
