// Package fid defines feature ids: the int64 keys of embedding rows, made of a slot (which feature field) and a
// signature (which value of it).
//
//	v1   63          54 53                                       0
//	    +--------------+-----------------------------------------+
//	    | slot, 10 bit |            signature, 54 bit            |
//	    +--------------+-----------------------------------------+
//
//	v2   63 62             48 47                                 0
//	    +--+-----------------+-----------------------------------+
//	    |0 |   slot, 15 bit  |         signature, 48 bit         |
//	    +--+-----------------+-----------------------------------+
//
// The layouts are those of bytedance/monolith (native_training/data/training_instance/cc/fid.h, reader_util.h). Everything
// in this project uses v2; v1 is read from old data and turned into v2. Tables take any int64 as a key, so an id need
// not follow either layout; only what asks for a slot assumes v2.
package fid

import (
	"fmt"
	"strconv"
	"strings"
)

// Widths and counts of the two layouts.
const (
	// SlotBits and SignatureBits are the widths in a v2 id, below one reserved bit that is 0.
	SlotBits      = 15
	SignatureBits = 48
	// SlotBitsV1 and SignatureBitsV1 are the widths in a v1 id.
	SlotBitsV1      = 10
	SignatureBitsV1 = 54

	// NumSlots and NumSlotsV1 are how many slots there are, from 0.
	NumSlots   = 1 << SlotBits
	NumSlotsV1 = 1 << SlotBitsV1

	// MaxSignature and MaxSignatureV1 are the largest signatures.
	MaxSignature   = 1<<SignatureBits - 1
	MaxSignatureV1 = 1<<SignatureBitsV1 - 1
)

// ID is a feature id. Its methods read it as v2 unless their name says v1. Ordering and equality are those of int64.
type ID int64

// New returns the v2 id of a slot in [0, [NumSlots]) and a signature up to [MaxSignature]. Upstream's GetFidV2 sets the
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

// NewV1 returns the v1 id of a slot in [0, [NumSlotsV1]) and a signature up to [MaxSignatureV1]. Slots from 512 give
// negative numbers.
func NewV1(slot int, signature uint64) (ID, error) {
	if slot < 0 || slot >= NumSlotsV1 {
		return 0, fmt.Errorf("fid: v1 slot %d is outside 0 to %d", slot, NumSlotsV1-1)
	}
	if signature > MaxSignatureV1 {
		return 0, fmt.Errorf("fid: v1 signature %d needs more than %d bits", signature, SignatureBitsV1)
	}
	return ID(uint64(slot)<<SignatureBitsV1 | signature), nil
}

// FromInt64 checks that v follows the v2 layout, that is that the reserved bit is 0.
func FromInt64(v int64) (ID, error) {
	if v < 0 {
		return 0, fmt.Errorf("fid: %d has the reserved bit set, so it is no v2 id", v)
	}
	return ID(v), nil
}

// Slot returns the slot of a v2 id.
func (id ID) Slot() int { return int(uint64(id) >> SignatureBits & (NumSlots - 1)) }

// Signature returns the signature of a v2 id.
func (id ID) Signature() uint64 { return uint64(id) & MaxSignature }

// SlotV1 returns the slot of a v1 id.
func (id ID) SlotV1() int { return int(uint64(id) >> SignatureBitsV1) }

// SignatureV1 returns the signature of a v1 id.
func (id ID) SignatureV1() uint64 { return uint64(id) & MaxSignatureV1 }

// V1ToV2 turns a v1 id into a v2 id of the same slot. The upper 6 bits of the signature are lost, as upstream loses
// them, so two v1 ids may become one.
func (id ID) V1ToV2() ID { return ID(int64(id.SlotV1())<<SignatureBits | int64(id.Signature())) }

// WithSlot returns the v2 id of the same signature in another slot, which must be in [0, [NumSlots]). Upstream's
// switch_slot masks one bit too many and lets it leak into the slot; this does not.
func (id ID) WithSlot(slot int) (ID, error) { return New(slot, id.Signature()) }

// String renders a v2 id as slot:signature and an id with the reserved bit set, which has no v2 slot, as the number
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
