package simd

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Family is a set of kernels for one kind of processor.
type Family uint8

// The families, in the order in which they are preferred.
const (
	// Portable is Go code, for every processor. Its bits are those of one architecture: see [Family.String].
	Portable Family = iota
	// AVX2 needs AVX2, FMA, F16C and BMI2: x86 processors since 2013.
	AVX2
	// AVX512 needs F, BW, DQ and VL.
	AVX512
	// AMX is AVX512 but for products of matrices ([Pool.Gemm], [Pool.GemmBF16], [Pool.GemmHalf]), which are those of AMX-BF16, in another order of sums: Xeons since 2023, where the
	// system lets the process have its registers.
	AMX
)

// Env is the environment variable that forces a family.
const Env = "MONOLITH_SIMD"

// vectors is the family that everything but products of matrices is of: AVX512 of AMX, and f of all others.
func (f Family) vectors() Family { return min(f, AVX512) }

// String is the name that goes into snapshots and reports: portable, avx2, avx512 or amx, the latter three with +openblas in a program that was built with the
// tag openblas, whose products are those of OpenBLAS. Programs that two compilers' rules made have names of their own, because the same Go code rounds
// differently in them: portable-arm64 (of [runtime.GOARCH], elsewhere than on amd64; its package math differs too), and +fma where x*y+z is rounded once on amd64 (GOAMD64=v3).
func (f Family) String() string {
	switch f {
	case AMX:
		return "amx" + suffix + rounding
	case AVX512:
		return "avx512" + suffix + rounding
	case AVX2:
		return "avx2" + suffix + rounding
	default:
		return "portable" + rounding
	}
}

// rounding is a constant of the program: what its compiler makes of Go's arithmetic, where that is not what it is on amd64.
var rounding = roundingOf(runtime.GOARCH, productPlus(1+1.0/8192, 1-1.0/8192, -1) != 0)

func roundingOf(arch string, fused bool) string {
	switch {
	case arch != "amd64":
		return "-" + arch
	case fused:
		return "+fma"
	default:
		return ""
	}
}

// productPlus is 0 for factors of 1+d and 1-d and a term of -1, where d*d is below half of the last place of 1 and the product is rounded before it is added to.
//
//go:noinline
func productPlus(x, y, z float32) float32 { return x*y + z }

// settings are the values of [Env] that ask for a family.
var settings = map[Family]string{Portable: "off", AVX2: "avx2", AVX512: "avx512", AMX: "amx"}

// Setting returns what makes this program use the family that a snapshot or report calls name, as in MONOLITH_SIMD=off; the processor may lack it. It is empty for families of programs for another
// architecture, or compiled in another way, which this one has not.
func Setting(name string) string {
	for f, value := range settings {
		if f.String() == name {
			return Env + "=" + value
		}
	}
	return ""
}

// chosen is a constant of the process: it is set before main and never again.
var chosen, errEnv = choose(os.Getenv(Env), Available())

// active is the family of functions without a pool.
var active = chosen.vectors()

// Active is the family of this process.
func Active() Family { return chosen }

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
			if hasTiles() {
				all = append(all, AMX)
			}
		}
	}
	return all
}

func choose(env string, available []Family) (Family, error) {
	best := available[len(available)-1]
	if env == "" {
		return best, nil
	}
	f, ok := best, false
	for g, value := range settings {
		if strings.EqualFold(env, value) {
			f, ok = g, true
		}
	}
	if !ok {
		return best, fmt.Errorf("simd: %s=%q is none of off, avx2, avx512 and amx; leave it empty for %s", Env, env, best)
	}
	if !slices.Contains(available, f) {
		return best, fmt.Errorf("simd: %s=%s: this processor, or its system, has not the instructions of %s; leave it empty for %s", Env, env, f, best)
	}
	return f, nil
}
