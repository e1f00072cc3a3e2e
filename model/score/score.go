// Package score holds what is known of examples after a model's step: the predictions of each head with the labels, mask
// and weights they are measured by, and the values of key columns ([Batch]); and the one binary form of it, the trace that
// updates carry and the parameter server keeps the end of ([Encoder], [Decode], [Ring]).
package score

import (
	"errors"
	"fmt"
)

// Batch holds the columns of a batch's examples that are no features. Slices belong to its maker.
type Batch struct {
	// Rows is the number of examples.
	Rows int
	// Heads has one entry for each head of the model, in its order.
	Heads []Head
	// Weights [Rows] are the examples' weights; nil: all 1.
	Weights []float32
	// Keys are the columns that metrics group and slice by, in the order of [Schema].Keys; none unless they were asked for.
	Keys []Key
}

// Head is one head's part of a [Batch].
type Head struct {
	// Width is the number of predictions a row, NumLabels that of labels.
	Width, NumLabels int
	// Predictions [Rows, Width] are in the head's own unit: a probability, a value.
	Predictions []float32
	// Labels is [Rows, NumLabels].
	Labels []float32
	// Mask [Rows] is false where a row has no label for this head, whatever Labels holds there; nil: all have one.
	Mask []bool
}

// SetPredictions points each head at its predictions.
func (b *Batch) SetPredictions(predictions [][]float32) {
	for i := range b.Heads {
		b.Heads[i].Predictions = predictions[i]
	}
}

// Key is a column of text: the value of row r is Bytes[Offsets[r]:Offsets[r+1]].
type Key struct {
	Offsets []int32 // [Rows+1]
	Bytes   []byte
}

// Value is that of a row. It belongs to the key.
func (k *Key) Value(row int) []byte { return k.Bytes[k.Offsets[row]:k.Offsets[row+1]] }

// Append appends a row's value to a key that is empty or was made by Append alone.
func (k *Key) Append(value []byte) {
	if len(k.Offsets) == 0 {
		k.Offsets = append(k.Offsets, 0)
	}
	k.Bytes = append(k.Bytes, value...)
	k.Offsets = append(k.Offsets, int32(len(k.Bytes)))
}

// Schema describes what batches of a model hold.
type Schema struct {
	Heads []HeadSchema
	// Keys are the names of the key columns.
	Keys []string
}

// HeadSchema is a head's part of a [Schema].
type HeadSchema struct {
	// Name may be empty, for a model's only head.
	Name string
	// Width is the number of predictions a row, NumLabels that of labels.
	Width, NumLabels int
}

// Bounds of what a trace can hold.
const (
	maxHeads = 255
	maxKeys  = 255
	maxName  = 255
	maxWidth = 1<<16 - 1
)

// Validate reports every fault at once.
func (s *Schema) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("score: "+format, args...)) }
	if n := len(s.Heads); n < 1 || n > maxHeads {
		bad("%d heads, not 1 to %d", n, maxHeads)
	}
	if n := len(s.Keys); n > maxKeys {
		bad("%d keys, at most %d", n, maxKeys)
	}
	for _, h := range s.Heads {
		if len(h.Name) > maxName {
			bad("the name of head %q has %d bytes, at most %d", h.Name, len(h.Name), maxName)
		}
		if h.Width < 1 || h.Width > maxWidth || h.NumLabels < 1 || h.NumLabels > maxWidth {
			bad("head %q has %d outputs and %d labels, not 1 to %d", h.Name, h.Width, h.NumLabels, maxWidth)
		}
	}
	for _, k := range s.Keys {
		if len(k) < 1 || len(k) > maxName {
			bad("the name of key %q has %d bytes, not 1 to %d", k, len(k), maxName)
		}
	}
	if len(faults) == 0 && s.size() > maxTrace {
		bad("a record has %d bytes, at most %d", s.size(), maxTrace)
	}
	return errors.Join(faults...)
}

// size is that of a record in bytes.
func (s *Schema) size() int {
	n := 4 + 8*len(s.Keys)
	for _, h := range s.Heads {
		n += 4 * (h.Width + h.NumLabels)
	}
	return n
}
