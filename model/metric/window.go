package metric

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrState is what [Window.UnmarshalBinary] returns, wrapped, for bytes that [Window.AppendBinary] did not write. The
// window stays as it was.
var ErrState = errors.New("metric: bad window state")

// Window measures the last examples of a stream exactly: each prediction is made before the model learns from its
// example, so the measures are honest without a held-out set (progressive validation; Blum, Kalai and Langford, 1999).
// It keeps 12 bytes an example. Not for concurrent use.
type Window struct {
	// ring[next] is the oldest example once the ring is full.
	probs, labels, weights []float32
	next                   int
	size                   int
	// seen counts all examples ever added.
	seen   int64
	ranker Ranker
}

var (
	_ encoding.BinaryAppender    = (*Window)(nil)
	_ encoding.BinaryMarshaler   = (*Window)(nil)
	_ encoding.BinaryUnmarshaler = (*Window)(nil)
)

// NewWindow returns a window over the last size examples; a size below 1 is taken as 1. Memory is taken as examples
// come.
func NewWindow(size int) *Window { return &Window{size: max(size, 1)} }

// Size is the largest number of examples the window keeps.
func (w *Window) Size() int { return w.size }

// Len is the number of examples in the window.
func (w *Window) Len() int { return len(w.probs) }

// Seen is the number of examples ever added.
func (w *Window) Seen() int64 { return w.seen }

// Add takes the predictions of a batch in the order of the stream. The caller keeps the slices. Nil weights stand for 1.
func (w *Window) Add(probs, labels, weights []float32) {
	checkLengths(probs, labels, weights)
	w.seen += int64(len(probs))
	for i := max(0, len(probs)-w.size); i < len(probs); i++ {
		weight := float32(weightOf(weights, i))
		if len(w.probs) < w.size {
			w.probs, w.labels, w.weights = append(w.probs, probs[i]), append(w.labels, labels[i]), append(w.weights, weight)
			continue
		}
		w.probs[w.next], w.labels[w.next], w.weights[w.next] = probs[i], labels[i], weight
		w.next = (w.next + 1) % w.size
	}
}

// Summary computes all measures of the examples in the window. It allocates nothing once the window is full.
func (w *Window) Summary() Summary { return w.ranker.Summarize(w.probs, w.labels, w.weights) }

// Reset empties the window.
func (w *Window) Reset() {
	w.probs, w.labels, w.weights = w.probs[:0], w.labels[:0], w.weights[:0]
	w.next, w.seen = 0, 0
}

// windowVersion is the first byte of a stored window. After it, all little-endian: size, seen, length as uint64, then
// for each example, oldest first, probability, label and weight as float32.
const (
	windowVersion = 1
	windowHeader  = 1 + 3*8
	exampleBytes  = 3 * 4
)

// AppendBinary appends the window's state.
func (w *Window) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, windowVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(w.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.seen))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.probs)))
	for k := range w.probs {
		i := (w.next + k) % len(w.probs)
		for _, v := range [...]float32{w.probs[i], w.labels[i], w.weights[i]} {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b, nil
}

// MarshalBinary returns the window's state.
func (w *Window) MarshalBinary() ([]byte, error) {
	return w.AppendBinary(make([]byte, 0, windowHeader+exampleBytes*len(w.probs)))
}

// UnmarshalBinary replaces the window, its size included, by a stored one. Errors wrap [ErrState].
func (w *Window) UnmarshalBinary(b []byte) error {
	if len(b) < windowHeader {
		return fmt.Errorf("%w: %d bytes are no header", ErrState, len(b))
	}
	if b[0] != windowVersion {
		return fmt.Errorf("%w: version %d, want %d", ErrState, b[0], windowVersion)
	}
	size, seen, length := binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:]), binary.LittleEndian.Uint64(b[17:])
	b = b[windowHeader:]
	if length != uint64(len(b)/exampleBytes) || len(b)%exampleBytes != 0 {
		return fmt.Errorf("%w: %d bytes for %d examples", ErrState, len(b), length)
	}
	if size < 1 || size > math.MaxInt32 || seen > math.MaxInt64 || length > size || length > seen {
		return fmt.Errorf("%w: size %d, seen %d, length %d", ErrState, size, seen, length)
	}
	*w = Window{size: int(size), seen: int64(seen), probs: make([]float32, length), labels: make([]float32, length), weights: make([]float32, length)}
	for i := range w.probs {
		at := b[i*exampleBytes:]
		w.probs[i] = math.Float32frombits(binary.LittleEndian.Uint32(at))
		w.labels[i] = math.Float32frombits(binary.LittleEndian.Uint32(at[4:]))
		w.weights[i] = math.Float32frombits(binary.LittleEndian.Uint32(at[8:]))
	}
	return nil
}
