// Package fid defines feature ids: the int64 keys of embedding rows, made of a slot (which feature field) and a
// signature (which value of it).
//
//	 63 62             48 47                                 0
//	+--+-----------------+-----------------------------------+
//	|0 |   slot, 15 bit  |         signature, 48 bit         |
//	+--+-----------------+-----------------------------------+
//
// The layout is the second one of bytedance/monolith (native_training/data/training_instance/cc/fid.h, reader_util.h); its
// older one, of 10 and 54 bits, is not read. Tables take any int64 as a key, so an id need not follow the layout; only what
// asks for a slot assumes it.
package fid

import (
	"fmt"
	"strconv"
	"strings"
)

// Widths and counts of the layout.
const (
	// SlotBits and SignatureBits are the widths in an id, below one reserved bit that is 0.
	SlotBits      = 15
	SignatureBits = 48

	// NumSlots is how many slots there are, from 0.
	NumSlots = 1 << SlotBits

	// MaxSignature is the largest signature.
	MaxSignature = 1<<SignatureBits - 1
)

// ID is a feature id. Ordering and equality are those of int64.
type ID int64

// New returns the id of a slot in [0, [NumSlots]) and a signature up to [MaxSignature]. Upstream's GetFidV2 sets the
// reserved bit for slot 32768 without a word; here that is an error.
func New(slot int, signature uint64) (ID, error) {
	if slot < 0 || slot >= NumSlots {
		return 0, fmt.Errorf("fid: slot %d is outside 0 to %d", slot, NumSlots-1)
	}
	if signature > MaxSignature {
		return 0, fmt.Errorf("fid: signature %d needs more than %d bits", signature, SignatureBits)
	}
	return ID(int64(slot)<<SignatureBits | int64(signature)), nil
}

// FromInt64 checks that v follows the layout, that is that the reserved bit is 0.
func FromInt64(v int64) (ID, error) {
	if v < 0 {
		return 0, fmt.Errorf("fid: %d has the reserved bit set, so it is no id of this layout", v)
	}
	return ID(v), nil
}

// Slot returns the slot of an id.
func (id ID) Slot() int { return int(uint64(id) >> SignatureBits & (NumSlots - 1)) }

// Signature returns the signature of an id.
func (id ID) Signature() uint64 { return uint64(id) & MaxSignature }

// WithSlot returns the id of the same signature in another slot, which must be in [0, [NumSlots]). Upstream's
// switch_slot masks one bit too many and lets it leak into the slot; this does not.
func (id ID) WithSlot(slot int) (ID, error) { return New(slot, id.Signature()) }

// String renders an id as slot:signature and an id with the reserved bit set, which has no slot, as the number
// itself. [Parse] reads both back.
func (id ID) String() string {
	if id < 0 {
		return strconv.FormatInt(int64(id), 10)
	}
	return strconv.Itoa(id.Slot()) + ":" + strconv.FormatUint(id.Signature(), 10)
}

// Parse reads slot:signature, or a whole id as one decimal number.
func Parse(s string) (ID, error) {
	slot, sig, two := strings.Cut(s, ":")
	if !two {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("fid: %q is neither slot:signature nor a number", s)
		}
		return ID(v), nil
	}
	n, err := strconv.Atoi(slot)
	if err != nil {
		return 0, fmt.Errorf("fid: slot %q of %q is not a number", slot, s)
	}
	v, err := strconv.ParseUint(sig, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fid: signature %q of %q is not a number", sig, s)
	}
	return New(n, v)
}
