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
