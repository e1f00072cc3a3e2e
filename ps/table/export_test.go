package table

// Portable makes a table work as it does where there are no functions in assembly.
func (t *Mem) Portable() *Mem {
	t.vector = false
	return t
}

// Vectors reports whether there are any here.
func Vectors() bool { return vectors() }

// RowBytes is what the weights and the state of a row take.
func (t *Mem) RowBytes() int { return 4 * t.slabs.stride }
