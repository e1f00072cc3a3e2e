//go:build race

package testbed

// Race reports whether the race detector is on. It allocates, and it sees races of others.
const Race = true
