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

// CallerAsleep reports whether the caller of Run sleeps until the others' last blocks are done.
func CallerAsleep(p *Pool) bool { return p.caller.asleep.Load() }

// Choose is the choice of a family by the value of MONOLITH_SIMD and what the processor has.
func Choose(env string, available []Family) (Family, error) { return choose(env, available) }

// RoundingOf is what names of families end in, in programs for arch where x*y+z is rounded once, or twice.
func RoundingOf(arch string, fused bool) string { return roundingOf(arch, fused) }

// SetActive makes f the family of the functions without a pool, and returns what makes it the former again.
func SetActive(f Family) (restore func()) {
	former := chosen
	chosen, active = f, f.vectors()
	return func() { chosen, active = former, former.vectors() }
}

// Interpreted is set where the instructions of AVX-512 are interpreted.
const Interpreted = interpreted

// Foreign is set where products are those of another library, which promises no bits.
const Foreign = suffix != ""

// WithoutPairs makes the pool's products of bfloat16 those of a processor without VDPBF16PS, and reports whether that is a change.
func WithoutPairs(p *Pool) bool {
	had := p.pairs
	p.pairs = false
	return had
}
