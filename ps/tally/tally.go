// Package tally describes what the rows of each slot are like: how many they are, how often they occur, how large and how old they
// are. Tallies of parts of a table add up.
package tally

import (
	"math"
	"math/bits"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/table"
)

// Slots has what a table has of each slot, [fid.NumSlots], nil for those that it has nothing of.
type Slots []*Slot

// New makes an empty tally. It takes 16 KiB for each slot at most, as slots come.
func New() Slots { return make(Slots, fid.NumSlots) }

// At returns what is known of a slot, to be added to.
func (s Slots) At(slot int) *Slot {
	if s[slot] == nil {
		s[slot] = &Slot{}
	}
	return s[slot]
}

// Rows adds rows of so many weights each, which must be finite. newest is the time that ages count back from; a row that is newer has none.
func (s Slots) Rows(r *table.Rows, dim int, newest int64) {
	for i, key := range r.Keys {
		s.At(param.SlotOf(key)).add(r.Times[i], newest, r.Counts[i], r.Weights[i*dim:(i+1)*dim])
	}
}

// Waiting adds fids that wait for a row.
func (s Slots) Waiting(r *table.Rows) {
	for _, key := range r.Keys {
		s.At(param.SlotOf(key)).Waiting++
	}
}

// Add adds another tally.
func (s Slots) Add(o Slots) {
	for slot, of := range o {
		if of != nil {
			s.At(slot).merge(of)
		}
	}
}

// Slot is what rows of one slot add up to. The zero value is that of none.
type Slot struct {
	// Rows is how many there are, Once how many of them have a count of 1, Timeless how many have no time and no part in Ages. Waiting is how many
	// fids wait for a row.
	Rows, Once, Timeless, Waiting int64
	// Occurrences is the sum of the counts, up to the largest number.
	Occurrences uint64
	// Norms is the sum of the Euclidean norms of the weights.
	Norms float64
	// Ages are those of the rows, in microseconds.
	Ages Ages
}

// add adds a row.
func (s *Slot) add(at, newest int64, count uint64, weights []float32) {
	s.Rows++
	if count == 1 {
		s.Once++
	}
	s.Occurrences = sum(s.Occurrences, count)
	squares := 0. // finite, as all weights of a snapshot are
	for _, w := range weights {
		squares += float64(w) * float64(w)
	}
	s.Norms += math.Sqrt(squares)
	if at <= 0 {
		s.Timeless++
	} else {
		s.Ages.add(uint64(max(newest-at, 0)), 1)
	}
}

func (s *Slot) merge(o *Slot) {
	s.Rows, s.Once, s.Timeless, s.Waiting = s.Rows+o.Rows, s.Once+o.Once, s.Timeless+o.Timeless, s.Waiting+o.Waiting
	s.Occurrences = sum(s.Occurrences, o.Occurrences)
	s.Norms += o.Norms
	o.Ages.Each(s.Ages.Put)
	s.Ages.Max = max(s.Ages.Max, o.Ages.Max)
}

// sum is a + b, up to the largest number.
func sum(a, b uint64) uint64 {
	s, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return s
}

// ageBits makes buckets 2^-ageBits of their values wide.
const ageBits = 5

// NumBuckets is how many buckets [Ages] have.
const NumBuckets = (65 - ageBits) << ageBits

// Ages is a histogram of microseconds: below 64 of each, above that in 32 buckets for each power of two. A quantile is the upper end of
// the bucket that it lies in, so it is exact below 64 µs, and above that at most 1/32 more than it is and never less. It does not depend on the order of
// the rows. There is memory for the powers of two that occur alone.
type Ages struct {
	powers [65 - ageBits]*[1 << ageBits]int64
	// N is how many ages there are, Max the largest.
	N   int64
	Max uint64
}

// add counts an age so many times.
func (a *Ages) add(age uint64, n int64) {
	a.Max = max(a.Max, age)
	power := max(0, bits.Len64(age)-1-ageBits)
	if age>>ageBits > 0 {
		power++
	}
	a.Put(power<<ageBits|int(age>>max(0, power-1)&(1<<ageBits-1)), n)
}

// Put adds so many rows to a bucket, below [NumBuckets]. Max is the caller's to set.
func (a *Ages) Put(bucket int, n int64) {
	power := bucket >> ageBits
	if a.powers[power] == nil {
		a.powers[power] = new([1 << ageBits]int64)
	}
	a.powers[power][bucket&(1<<ageBits-1)] += n
	a.N += n
}

// Each calls f for the buckets that have rows, in order.
func (a *Ages) Each(f func(bucket int, n int64)) {
	for power, of := range a.powers {
		if of == nil {
			continue
		}
		for i, n := range of {
			if n > 0 {
				f(power<<ageBits|i, n)
			}
		}
	}
}

// Quantile is the age that percent of a hundred rows do not exceed: that of rank ⌈N·percent/100⌉. N is at least 1.
func (a *Ages) Quantile(percent int64) uint64 {
	left := a.N/100*percent + (a.N%100*percent+99)/100
	at := a.Max
	found := false
	a.Each(func(bucket int, n int64) {
		if left -= n; left > 0 || found {
			return
		}
		found = true
		power, i := bucket>>ageBits, uint64(bucket&(1<<ageBits-1))
		if power == 0 {
			at = i
			return
		}
		low := (1<<ageBits | i) << (power - 1)
		at = min(a.Max, low+(1<<(power-1)-1))
	})
	return at
}
