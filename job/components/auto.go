package components

import "github.com/monolith-go/monolith/model/optim"

// Auto leaves the rule to the model.
type Auto struct{}

// Rule implements [component.OptimizerConfig]: nil, so that the model chooses.
func (*Auto) Rule() optim.Optimizer { return nil }
