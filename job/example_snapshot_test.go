package job_test

import (
	"context"
	"fmt"
	"os"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// The weights of a snapshot are read without its job: the manifest has the model, the shape of the parameters and how examples
// are made; optimizer state is not read.
func Example_snapshot() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example's leftovers
	cfg, err := job.Decode([]byte(clicksJob), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + dir}})
	if err != nil {
		fmt.Println(err)
		return
	}
	trained, err := job.Run(context.Background(), cfg, job.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	s, err := snapshot.OpenWith(context.Background(), trained.Snapshot, snapshot.OpenOptions{WeightsOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close() //nolint:errcheck // it was only read
	for t, tbl := range s.Info().Tables {
		for _, seg := range tbl.Segments {
			fmt.Printf("table %s, segment %s: %d numbers a row\n", tbl.Name, seg.Name, seg.Dim)
		}
		var rows int64
		var updates uint64
		err := s.Rows(t, func(r *table.Rows) error { // some rows at a time; they are valid until it returns
			rows += int64(len(r.Keys))
			for _, n := range r.Counts {
				updates += n
			}
			return nil
		})
		fmt.Println("all rows read:", rows == tbl.Rows, err, "occurrences:", updates)
	}
	tensors, err := s.Tensors()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range tensors {
		fmt.Println("tensor", t.Name, t.Shape, len(t.Weights))
	}
	// Output:
	// table embedding, segment bias: 1 numbers a row
	// table embedding, segment vec: 4 numbers a row
	// all rows read: true <nil> occurrences: 40000
	// tensor linear.weight [1 1] 1
	// tensor linear.bias [1] 1
	// tensor dense.vectors [1 4] 4
}
