package job_test

import (
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/wiring"
)

// TestThreadsOfRows: the shards of a process that trains have the threads of its workers for lookups and updates, and share them; those of a process that has shards
// alone have none of these.
func TestThreadsOfRows(t *testing.T) {
	t.Parallel()
	for ps, want := range map[string][2]int{"{shards: 1}": {6, 6}, "{shards: 2}": {6, 3}, "{addresses: ['127.0.0.1:1', '127.0.0.1:2']}": {0, 0}} {
		text := "version: 1\nname: t\ndir: " + t.TempDir() + "\nsource: {synthetic: {}}\nparse:\n  features: [{name: a, slot: 1}]\n  label: y\nmodel: {lr: {}}\ntrain: {threads: 6}\nps: " + ps + "\n"
		c, err := job.Decode([]byte(text), "t.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := wiring.Model(c)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := wiring.BuildPlan(c)
		if err != nil {
			t.Fatal(err)
		}
		o, err := wiring.ClusterOptions(t.Context(), c, plan, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{o.Threads, o.Node(0, max(c.PS.Shards, 1)).Threads}; got != want {
			t.Errorf("ps: %s: %v threads of all and of each shard, want %v", ps, got, want)
		}
	}
}
