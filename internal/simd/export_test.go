package simd

// Asleep reports whether all goroutines of the pool sleep.
func Asleep(p *Pool) bool {
	for i := range p.sleepers {
		if !p.sleepers[i].asleep.Load() {
			return false
		}
	}
	return true
}

// Choose is the choice of a family by the value of MONOLITH_SIMD and what the processor has.
func Choose(env string, available []Family) (Family, error) { return choose(env, available) }

// The kernels of one family, which the package's functions choose by the active one.
func (f Family) Dot(x, y []float32) float32         { return f.dot(x, y) }
func (f Family) Axpy(alpha float32, x, y []float32) { f.axpy(alpha, x, y) }
