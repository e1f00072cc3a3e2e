package score

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// totalsVersion is the first byte of encoded totals. Another form gets another number.
	totalsVersion = 1
	// maxTotals is how many heads are summed up at most, the first of one output.
	maxTotals = 32
	// Predictions are counted by the upper bits of float32: 256 buckets for each power of two from 2⁻²⁴ to 1, so that they differ by less than .4 %
	// within one. What is smaller is in the first bucket.
	bucketShift = 15
	firstBucket = (127 - 24) << (23 - bucketShift)
	numBuckets  = 127<<(23-bucketShift) - firstBucket + 1
	// minProbability bounds what the logarithm is taken of, as in package metric.
	minProbability = 1e-7
	// rounds is how many probabilities are multiplied before the logarithm of the product is taken: 1e-7 to the power of that is still a number.
	rounds = 32
)

// Totals are sums over all examples of the traces that are added, of each head of one output and one label ([maxTotals] at most): what metrics of a
// whole stream are computed from, of which the trace keeps the end. Traces of another schema empty them first. They take 100 KB for each head, with
// the first trace. The zero value is empty. Not for concurrent use.
type Totals struct {
	header []byte
	weight int // where that of an example lies in a record
	heads  []HeadTotals
}

// HeadTotals are those of a head. An example whose label is masked, or of no weight, is in none of them.
type HeadTotals struct {
	// Name is the head's.
	Name string
	// Examples is how many there are.
	Examples int64
	// Weight, Predicted and Happened are the sums of weights, weighted predictions and weighted labels, SquaredError that of weighted squares of their
	// differences, LogLoss that of weighted cross entropies in nats.
	Weight, Predicted, Happened, SquaredError, LogLoss float64
	// Probabilities reports that all predictions were from 0 to 1 and all labels 0 or 1; LogLoss and AUC say nothing otherwise.
	Probabilities bool

	at     int          // of its prediction in a record; the label follows
	counts [2][]float64 // weights by label, in buckets of predictions
}

// AUC is the probability that a positive is predicted above a negative, by weights; pairs in one bucket, whose predictions differ by less than .4 %,
// count half, as ties do. ok is false without either.
func (h *HeadTotals) AUC() (auc float64, ok bool) {
	var won, lost, below, positives float64
	for i, p := range h.counts[1] {
		n := h.counts[0][i]
		won += p * (below + n/2)
		lost += n * (positives + p/2)
		below += n
		positives += p
	}
	if !h.Probabilities || !(below > 0) || !(positives > 0) {
		return math.NaN(), false
	}
	return won / (won + lost), true // at most 1, however the sums are rounded
}

// Heads are the totals of the heads that have any, which belong to t.
func (t *Totals) Heads() []HeadTotals { return t.heads }

// Add adds the examples of a trace. It allocates nothing while the schema stays. Errors: [ErrTrace], and t is as it was.
func (t *Totals) Add(trace []byte) error {
	header, size, err := split(trace)
	if err != nil || len(trace) == len(header) {
		return err
	}
	if !bytes.Equal(header, t.header) {
		t.begin(header)
	}
	records := trace[len(header):]
	for i := range t.heads {
		t.heads[i].add(records, size, t.weight)
	}
	return nil
}

// begin empties the totals for traces with a header, which split has checked.
func (t *Totals) begin(header []byte) {
	s, _, _ := decodeHeader(header)
	t.header, t.heads = bytes.Clone(header), nil
	at := 0
	for _, h := range s.Heads {
		if h.Width == 1 && h.NumLabels == 1 && len(t.heads) < maxTotals {
			t.heads = append(t.heads, HeadTotals{Name: h.Name, Probabilities: true, at: at, counts: [2][]float64{make([]float64, numBuckets), make([]float64, numBuckets)}})
		}
		at += 4 * (h.Width + h.NumLabels)
	}
	t.weight = at
}

func (h *HeadTotals) add(records []byte, size, weight int) {
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(records[at:])) }
	product, factors := 1.0, 0
	// Sums in variables stay in registers.
	examples, weights, predicted, happened, squared, loss := h.Examples, h.Weight, h.Predicted, h.Happened, h.SquaredError, h.LogLoss
	for ; len(records) > 0; records = records[size:] {
		p32, y32, w := float(h.at), float(h.at+4), float64(float(weight))
		if y32 != y32 || w == 0 {
			continue
		}
		p, y := float64(p32), float64(y32)
		examples++
		weights += w
		predicted += w * p
		happened += w * y
		squared += w * (p - y) * (p - y)
		if !(p >= 0 && p <= 1 && y*(y-1) == 0) { // y is 0 or 1, again without such a branch
			h.Probabilities = false
		}
		if !h.Probabilities {
			continue
		}
		h.counts[int(y)][bucket(p32)] += w
		q := min(max(p, minProbability), 1-minProbability)
		q = math.Abs(1 - y - q) // 1-q for a label of 0, without a branch on what cannot be guessed
		if w != 1 {
			loss -= w * math.Log(q)
			continue
		}
		product *= q
		if factors++; factors == rounds {
			loss -= math.Log(product)
			product, factors = 1, 0
		}
	}
	h.Examples, h.Weight, h.Predicted, h.Happened, h.SquaredError, h.LogLoss = examples, weights, predicted, happened, squared, loss-math.Log(product)
}

// bucket is that of a number from 0, which may be negative zero, to 1.
func bucket(p float32) int { return max(int(math.Float32bits(p)<<1>>1>>bucketShift)-firstBucket, 0) }

// Totals are encoded, all numbers little-endian, as
//
//	version u8 | header of traces, its length before it u32 | of each head: flags u8 | examples u64 | five sums f64 | number of buckets u32 | bucket ...
//	bucket | its number less the one before uvarint | weights of label 0 and of label 1, each a weight |
//	weight | twice a whole number, uvarint; or 1, and f64 |
//
// Buckets ascend, and those without weights are left out. Weights are seldom anything but numbers of examples: a bucket takes four bytes or so.

// Bytes encodes the totals; nil when nothing was added.
func (t *Totals) Bytes() []byte {
	if len(t.heads) == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint32([]byte{totalsVersion}, uint32(len(t.header)))
	b = append(b, t.header...)
	for i := range t.heads {
		h := &t.heads[i]
		flags := byte(0)
		if h.Probabilities {
			flags = 1
		}
		b = binary.LittleEndian.AppendUint64(append(b, flags), uint64(h.Examples))
		for _, v := range h.sums() {
			b = appendDouble(b, *v)
		}
		at := len(b)
		b = binary.LittleEndian.AppendUint32(b, 0)
		last := -1
		for k, n := range h.counts[0] {
			if p := h.counts[1][k]; n != 0 || p != 0 {
				b = appendWeight(appendWeight(binary.AppendUvarint(b, uint64(k-last)), n), p)
				binary.LittleEndian.PutUint32(b[at:], binary.LittleEndian.Uint32(b[at:])+1)
				last = k
			}
		}
	}
	return b
}

func (h *HeadTotals) sums() [5]*float64 {
	return [5]*float64{&h.Weight, &h.Predicted, &h.Happened, &h.SquaredError, &h.LogLoss}
}

func appendDouble(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendWeight(b []byte, v float64) []byte {
	if v >= 0 && v < 1<<53 && v == math.Trunc(v) {
		return binary.AppendUvarint(b, uint64(v)<<1)
	}
	return appendDouble(append(b, 1), v)
}

// takeWeight reads what appendWeight wrote, and returns what follows it.
func takeWeight(b []byte) (v float64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	switch {
	case size <= 0:
		return 0, nil, false
	case n&1 == 0:
		return float64(n >> 1), b[size:], true
	case n != 1 || len(b) < size+8:
		return 0, nil, false
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b[size:])), b[size+8:], true
}

// Set replaces the totals by what Bytes gave; nil empties them. It keeps nothing of b. Errors: [ErrTrace], and t is as it was.
func (t *Totals) Set(b []byte) error {
	if len(b) == 0 {
		*t = Totals{}
		return nil
	}
	bad := func(what string) error { return fmt.Errorf("%w: totals: %s", ErrTrace, what) }
	take := func(n int) []byte {
		if n < 0 || n > len(b) {
			return nil
		}
		part := b[:n:n]
		b = b[n:]
		return part
	}
	head := take(5)
	if head == nil || head[0] != totalsVersion {
		return bad("they do not begin as those of this version")
	}
	header := take(int(min(binary.LittleEndian.Uint32(head[1:]), math.MaxInt32)))
	n, _, err := walkHeader(header, nil)
	if err != nil {
		return err
	}
	if n != len(header) {
		return bad("the header of traces is of another length")
	}
	var read Totals
	read.begin(header)
	for i := range read.heads {
		h := &read.heads[i]
		part := take(1 + 8 + 8*5 + 4)
		if part == nil || part[0] > 1 {
			return bad("they end within a head, or its flags are unknown")
		}
		h.Probabilities = part[0] == 1
		if h.Examples = int64(binary.LittleEndian.Uint64(part[1:])); h.Examples < 0 {
			return bad("a number of examples is negative")
		}
		for k, v := range h.sums() {
			*v = math.Float64frombits(binary.LittleEndian.Uint64(part[9+8*k:]))
		}
		last := -1
		for range binary.LittleEndian.Uint32(part[len(part)-4:]) {
			step, size := binary.Uvarint(b)
			if size <= 0 || step == 0 || step > numBuckets || last+int(step) >= numBuckets {
				return bad("they end within buckets, or these do not ascend")
			}
			b, last = b[size:], last+int(step)
			for label := range h.counts {
				weight, rest, ok := takeWeight(b)
				if !ok {
					return bad("they end within a bucket")
				}
				b, h.counts[label][last] = rest, weight
			}
		}
	}
	if len(b) > 0 {
		return bad("bytes are left over")
	}
	*t = read
	return nil
}

// CheckTotals reports bytes that are no totals. Errors: [ErrTrace].
func CheckTotals(b []byte) error { return new(Totals).Set(b) }
