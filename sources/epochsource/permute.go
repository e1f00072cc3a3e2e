package epochsource

import (
	"hash/fnv"
	"math/bits"
)

// permutation returns an order of n rows. It is written out rather than left to math/rand, whose algorithms may change
// with the release of Go: stored positions must mean the same rows for ever. Fisher-Yates (Knuth, The Art of Computer
// Programming, volume 2, algorithm 3.4.2P) over the numbers of splitmix64 (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014, figure 17).
func permutation(seed uint64, epoch int, split string, start int64, n int) []int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(split)) // never fails
	state := seed
	for _, part := range []uint64{uint64(epoch), h.Sum64(), uint64(start)} {
		state = mix(state+gamma) ^ part
	}
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	for i := n - 1; i > 0; i-- {
		var j uint64
		j, state = below(uint64(i)+1, state)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

const gamma = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number under n, each with the same probability, and the generator's next state (Lemire, Fast Random
// Integer Generation in an Interval, ACM TOMACS 29(1), 2019, algorithm 5).
func below(n, state uint64) (value, next uint64) {
	for {
		state += gamma
		high, low := bits.Mul64(mix(state), n)
		if low >= n || low >= -n%n {
			return high, state
		}
	}
}
