package graph

// Unfused leaves everything as it is declared: the reference of what Build takes together.
func (b *Builder) Unfused() { b.unfused = true }

// Gathered reports whether no live lookup writes its vectors down.
func (g *Graph) Gathered() bool {
	for i := range g.nodes {
		if _, ok := g.nodes[i].op.(*lookup); ok && g.nodes[i].live {
			return false
		}
	}
	return true
}

// OperatorNames lists the operators that can be written.
func OperatorNames() []string {
	var names []string
	for _, create := range operators() {
		names = append(names, create().name())
	}
	return names
}

// FusedLinears counts the linear operators that end with a relu.
func (g *Graph) FusedLinears() (n int) {
	for i := range g.nodes {
		if _, ok := g.nodes[i].op.(linearRelu); ok && g.nodes[i].live {
			n++
		}
	}
	return n
}

// Unshared gives each value and gradient a buffer of its own: the reference of the plans.
func (b *Builder) Unshared() { b.unshared = true }

// Buffers counts those of the values in prediction and of the gradients, and the values and gradients that are in them.
func (g *Graph) Buffers() (ofValues, values, ofGrads, grads int) {
	for i := range g.nodes {
		n := &g.nodes[i]
		if !n.live {
			continue
		}
		values++
		if g.values[i] == i {
			ofValues++
		}
		if !n.needsGrad {
			continue
		}
		grads++
		if g.grads[i] == i {
			ofGrads++
		}
	}
	return ofValues, values, ofGrads, grads
}

// Run counts the operators that are run.
func (g *Graph) Run() (n int) {
	for i := range g.nodes {
		if g.nodes[i].live {
			n++
		}
	}
	return n
}
