package simd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Family is a set of kernels for one kind of processor.
type Family uint8

// The families, in the order in which they are preferred.
const (
	// Portable is Go code. It gives the same bits on every processor.
	Portable Family = iota
	// AVX2 needs AVX2, FMA, F16C and BMI2: x86 processors since 2013.
	AVX2
	// AVX512 needs F, BW, DQ and VL.
	AVX512
)

// Env is the environment variable that forces a family.
const Env = "MONOLITH_SIMD"

// String is the name that goes into snapshots and reports: portable, avx2 or avx512, the latter with +openblas in a program that was built with the
// tag openblas, whose products are those of OpenBLAS.
func (f Family) String() string {
	switch f {
	case AVX512:
		return "avx512" + suffix
	case AVX2:
		return "avx2" + suffix
	default:
		return "portable"
	}
}

// active is a constant of the process: it is set before main and never again.
var active, errEnv = choose(os.Getenv(Env), Available())

// Active is the family of this process.
func Active() Family { return active }

// Check reports a value of MONOLITH_SIMD that is unknown or asks for what the processor has not; [Active] is then the widest
// family. Programs call it at start.
func Check() error { return errEnv }

// Available returns the families this processor can run, the widest last.
func Available() []Family {
	all := []Family{Portable}
	if hasAVX2() {
		all = append(all, AVX2)
		if hasAVX512() {
			all = append(all, AVX512)
		}
	}
	return all
}

func choose(env string, available []Family) (Family, error) {
	best := available[len(available)-1]
	wanted := map[string]Family{"": best, "off": Portable, "avx2": AVX2, "avx512": AVX512}
	f, ok := wanted[strings.ToLower(env)]
	if !ok {
		return best, fmt.Errorf("simd: %s=%q is none of off, avx2 and avx512; leave it empty for %s", Env, env, best)
	}
	if !slices.Contains(available, f) {
		return best, fmt.Errorf("simd: %s=%s: this processor has not the instructions of %s; leave it empty for %s", Env, env, f, best)
	}
	return f, nil
}
