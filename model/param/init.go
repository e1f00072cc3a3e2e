package param

import (
	"fmt"
	"math"
)

// InitKind names a distribution of initial values.
type InitKind uint8

// The kinds of initial values.
const (
	// InitZeros gives 0; it is the zero value.
	InitZeros InitKind = iota
	// InitConstant gives A.
	InitConstant
	// InitUniform draws from [A, B).
	InitUniform
	// InitNormal draws from the normal distribution with mean A and standard deviation B.
	InitNormal
	// InitTruncatedNormal draws from the normal distribution with mean A and standard deviation B what lies within two standard deviations.
	InitTruncatedNormal
	// InitGlorot draws from [-r, r), r being A·√(6/(1+dim)) for a vector of dim numbers.
	InitGlorot
)

// Init is how a vector that has never been updated is filled.
type Init struct {
	Kind InitKind
	A, B float32
}

// Zeros fills with 0.
func Zeros() Init { return Init{} }

// Constant fills with v.
func Constant(v float32) Init { return Init{Kind: InitConstant, A: v} }

// Uniform draws from [low, high).
func Uniform(low, high float32) Init { return Init{Kind: InitUniform, A: low, B: high} }

// Normal draws from the normal distribution.
func Normal(mean, stddev float32) Init { return Init{Kind: InitNormal, A: mean, B: stddev} }

// TruncatedNormal draws from the normal distribution what lies within two standard deviations of the mean; that of the result is .8796·stddev.
func TruncatedNormal(mean, stddev float32) Init {
	return Init{Kind: InitTruncatedNormal, A: mean, B: stddev}
}

// Glorot draws from ±gain·√(6/(1+dim)) for a vector of dim numbers (Glorot and Bengio, 2010, equation 16, also called Xavier's; the row
// of an embedding leads from one unit, its id, to dim). For matrices there is [GlorotUniform].
func Glorot(gain float32) Init { return Init{Kind: InitGlorot, A: gain} }

// GlorotUniform draws from ±sqrt(6/(fanIn+fanOut)) (Glorot and Bengio, 2010, equation 16).
func GlorotUniform(fanIn, fanOut int) Init {
	r := float32(math.Sqrt(6 / float64(fanIn+fanOut)))
	return Uniform(-r, r)
}

// HeUniform draws from ±sqrt(6/fanIn) (He et al., 2015, equation 10, as a uniform distribution), for layers with relu.
func HeUniform(fanIn, _ int) Init {
	r := float32(math.Sqrt(6 / float64(fanIn)))
	return Uniform(-r, r)
}

// HeNormal draws from the normal distribution of the variance 2/fanIn (He et al., 2015, equation 10) what lies within two deviations, the result having that variance.
func HeNormal(fanIn, _ int) Init {
	return TruncatedNormal(0, float32(math.Sqrt(2/float64(fanIn))/truncatedDeviation))
}

// GlorotNormal draws from the normal distribution of the variance 2/(fanIn+fanOut) (Glorot and Bengio, 2010) what lies within two deviations, the result having that variance.
func GlorotNormal(fanIn, fanOut int) Init {
	return TruncatedNormal(0, float32(math.Sqrt(2/float64(fanIn+fanOut))/truncatedDeviation))
}

// truncatedDeviation is the standard deviation of a standard normal variable that lies within 2 of 0.
const truncatedDeviation = 0.87962566103423978

// MeanSquare is the mean of the squares of the values, of a vector of one number.
func (i Init) MeanSquare() float64 {
	a, b := float64(i.A), float64(i.B)
	switch i.Kind {
	case InitZeros:
	case InitConstant:
		return a * a
	case InitUniform:
		return (a*a + a*b + b*b) / 3
	case InitNormal:
		return a*a + b*b
	case InitTruncatedNormal:
		return a*a + b*b*truncatedDeviation*truncatedDeviation
	case InitGlorot:
		return a * a
	}
	return 0
}

// String renders the initializer in one canonical form.
func (i Init) String() string {
	switch i.Kind {
	case InitZeros:
		return "zeros"
	case InitConstant:
		return fmt.Sprintf("constant(%g)", i.A)
	case InitUniform:
		return fmt.Sprintf("uniform(%g,%g)", i.A, i.B)
	case InitNormal:
		return fmt.Sprintf("normal(%g,%g)", i.A, i.B)
	case InitTruncatedNormal:
		return fmt.Sprintf("truncated_normal(%g,%g)", i.A, i.B)
	case InitGlorot:
		return fmt.Sprintf("glorot(%g)", i.A)
	}
	return fmt.Sprintf("init(%d)", i.Kind)
}

// Fill writes initial values that are a function of (seed, name, id) alone; it allocates nothing. Each element has a
// random number of its own (SplitMix64, Steele et al., 2014), so a prefix of a longer vector has the same values, but for [InitGlorot], whose
// bounds go by the length.
func (i Init) Fill(dst []float32, seed, name, id uint64) {
	switch i.Kind {
	case InitZeros:
		clear(dst)
	case InitConstant:
		for k := range dst {
			dst[k] = i.A
		}
	case InitUniform:
		uniform(dst, i.A, i.B, Mix(Mix(seed, name), id))
	case InitGlorot:
		r := i.A * float32(math.Sqrt(6/float64(1+len(dst))))
		uniform(dst, -r, r, Mix(Mix(seed, name), id))
	case InitNormal:
		s := Mix(Mix(seed, name), id)
		for k := range dst {
			dst[k] = i.A + i.B*float32(Gauss(Mix(s, uint64(k))))
		}
	case InitTruncatedNormal:
		s := Mix(Mix(seed, name), id)
		for k := range dst {
			r := Mix(s, uint64(k))
			z := Gauss(r)
			for attempt := uint64(0); math.Abs(z) > 2; attempt++ { // one of 22 lies outside
				z = Gauss(Mix(r, attempt))
			}
			dst[k] = i.A + i.B*float32(z)
		}
	}
}

func uniform(dst []float32, low, high float32, s uint64) {
	for k := range dst {
		dst[k] = low + (high-low)*unit32(Mix(s, uint64(k)))
	}
}

// Gauss makes a number of the standard normal distribution of random bits (Box and Muller, 1958).
func Gauss(r uint64) float64 {
	u1 := (float64(r>>40) + 1) / (1 << 24) // in (0, 1], so its logarithm is finite
	u2 := float64(r&(1<<24-1)) / (1 << 24)
	return math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
}

// MixStep is what [Mix] adds for each number of its second argument, the golden gamma of SplitMix64.
const MixStep = 0x9e3779b97f4a7c15

// Mix hashes two words into one; it is the one step of SplitMix64 after adding b times the golden gamma to a.
func Mix(a, b uint64) uint64 {
	z := a + (b+1)*MixStep
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// HashName hashes a name (FNV-1a, 64 bits) for [Init.Fill].
func HashName(names ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range names {
		for k := range len(s) {
			h = (h ^ uint64(s[k])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211 // keeps ("ab", "c") apart from ("a", "bc")
	}
	return h
}

func unit32(r uint64) float32 { return float32(r>>40) / (1 << 24) }
