package zoo_test

import (
	"testing"

	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestShallowModels: a list of hidden layers that is empty has none, in every model, which then follows the reference.
func TestShallowModels(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		cfg := small(zoo.Config{Name: name, Features: mixed(), Dim: 4, Hidden: []int{9, 5}, CrossLayers: 2})
		cfg.Blocks, cfg.Hidden = 1, []int{}
		cfg.Bottom, cfg.Second, cfg.Tower, cfg.Relation = []int{}, []int{}, []int{}, []int{}
		if name == zoo.FinalMLP {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			graphtest.Check(t, mustNew(t, cfg).Graph)
		})
	}
}
