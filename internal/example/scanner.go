package example

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// MalformedError says that a record is not a tf.Example: what could not be read and, in bytes from the beginning of the
// message it is in, where.
type MalformedError struct {
	What string
	At   int
}

// Error names what could not be read and where.
func (e *MalformedError) Error() string { return fmt.Sprintf("bad %s at byte %d", e.What, e.At) }

func errMalformed(what string, at int) error { return &MalformedError{What: what, At: at} }

// Scanner finds the features it was made for in records. It is not for concurrent use and allocates nothing once its
// buffers have grown.
type Scanner struct {
	names  []string
	table  []int16 // open addressing, a power of two; -1 is free
	shift  uint
	values []Value
	merged []byte // lists that came in pieces
}

// maxNames bounds the number of names, so that their index fits an int16.
const maxNames = 1 << 14

// NewScanner makes a scanner for features of these names, each once.
func NewScanner(names []string) (*Scanner, error) {
	if len(names) > maxNames {
		return nil, fmt.Errorf("example: %d names are more than %d", len(names), maxNames)
	}
	// A quarter full at most, so that a name that is not ours usually meets a free place at once.
	size := 1 << bits.Len(uint(4*len(names)+3))
	s := &Scanner{
		names:  names,
		table:  make([]int16, size),
		shift:  uint(64 - bits.TrailingZeros(uint(size))),
		values: make([]Value, len(names)),
	}
	for i := range s.table {
		s.table[i] = -1
	}
	for i, name := range names {
		if s.find([]byte(name)) >= 0 {
			return nil, fmt.Errorf("example: name %q occurs twice", name)
		}
		h := hashName([]byte(name)) >> s.shift
		for s.table[h] >= 0 {
			h = (h + 1) & uint64(len(s.table)-1)
		}
		s.table[h] = int16(i)
	}
	return s, nil
}

// Scan finds the features of one record: the result has one value for each name, in the order of the names. The lists
// themselves are checked when they are taken apart; what lies inside features of other names is not looked at. Errors:
// [*MalformedError].
func (s *Scanner) Scan(record []byte) ([]Value, error) {
	clear(s.values)
	s.merged = s.merged[:0]
	// Values may look beyond their own end, but never beyond the record's.
	record = slices.Clip(record)
	for p := 0; p < len(record); {
		tag, at := uvarint(record, p)
		if tag != tagMessage1 {
			q, err := skipField(record, p)
			if err != nil {
				return nil, err
			}
			p = q
			continue
		}
		size, q := uvarint(record, at)
		if q < 0 || size > uint64(len(record)-q) {
			return nil, errMalformed("features", p)
		}
		p = q + int(size)
		if err := s.features(record[q:p]); err != nil {
			return nil, err
		}
	}
	return s.values, nil
}

func (s *Scanner) features(b []byte) error {
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		if tag != tagMessage1 {
			q, err := skipField(b, p)
			if err != nil {
				return err
			}
			p = q
			continue
		}
		size, q := uvarint(b, at)
		if q < 0 || size > uint64(len(b)-q) {
			return errMalformed("feature entry", p)
		}
		p = q + int(size)
		if err := s.entry(b[q:p]); err != nil {
			return err
		}
	}
	return nil
}

// entry reads one map entry: almost always a key and after it a value with exactly one list. Then each length but
// the key's must reach to the end of the entry, and in an entry of less than 128 bytes each is one byte.
func (s *Scanner) entry(b []byte) error {
	if len(b) < 2 || b[0] != tagMessage1 {
		return s.oddEntry(b)
	}
	n := len(b)
	key := 2
	p := key + int(b[1]) // where the value begins
	if n < 0x80 && p+4 <= n && b[p] == tagMessage2 && int(b[p+1]) == n-p-2 && int(b[p+3]) == n-p-4 && isListTag(uint64(b[p+2])) {
		if i := s.find(b[key:p]); i >= 0 {
			s.values[i] = Value{Kind: Kind(b[p+2] >> 3), list: b[p+4:]}
		}
		return nil
	}
	size, key := uvarint(b, 1)
	if key < 0 || size > uint64(n-key) {
		return errMalformed("feature name", 0)
	}
	p = key + int(size)
	if p == n || b[p] != tagMessage2 {
		return s.oddEntry(b)
	}
	name := b[key:p]
	if size, p = uvarint(b, p+1); p < 0 || size != uint64(n-p) || size == 0 || !isListTag(uint64(b[p])) {
		return s.oddEntry(b)
	}
	kind := Kind(b[p] >> 3)
	if size, p = uvarint(b, p+1); p < 0 || size != uint64(n-p) {
		return s.oddEntry(b)
	}
	if i := s.find(name); i >= 0 {
		s.values[i] = Value{Kind: kind, list: b[p:]}
	}
	return nil
}

// isListTag reports whether a field of Feature is one of the lists.
func isListTag(tag uint64) bool {
	return tag == tagMessage1 || tag == tagMessage2 || tag == tagMessage3
}

// oddEntry reads any map entry: key and value in any order, any number of times, with unknown fields between. Of several
// keys the last counts; several values are one message in pieces.
func (s *Scanner) oddEntry(b []byte) error {
	var name []byte
	var value Value
	from := len(s.merged)
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		if tag != tagMessage1 && tag != tagMessage2 {
			q, err := skipField(b, p)
			if err != nil {
				return err
			}
			p = q
			continue
		}
		size, q := uvarint(b, at)
		if q < 0 || size > uint64(len(b)-q) {
			return errMalformed("feature entry", p)
		}
		p = q + int(size)
		if tag == tagMessage1 {
			name = b[q:p]
		} else if err := s.feature(b[q:p], &value, from); err != nil {
			return err
		}
	}
	if i := s.find(name); i >= 0 {
		s.values[i] = value
	}
	return nil
}

// feature merges one piece of a Feature into value: lists of the same kind are joined, which joins their wire forms,
// and another kind takes the place of what was there. The lists of one entry are gathered in merged from the index
// from on.
func (s *Scanner) feature(b []byte, value *Value, from int) error {
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		if !isListTag(tag) {
			q, err := skipField(b, p)
			if err != nil {
				return err
			}
			p = q
			continue
		}
		size, q := uvarint(b, at)
		if q < 0 || size > uint64(len(b)-q) {
			return errMalformed("feature", p)
		}
		p = q + int(size)
		if kind := Kind(tag >> 3); kind != value.Kind {
			value.Kind = kind
			s.merged = s.merged[:from]
		}
		s.merged = append(s.merged, b[q:p]...)
		// When merged grew, values of earlier entries keep the old array, which still holds them.
		value.list = s.merged[from:len(s.merged):len(s.merged)]
	}
	return nil
}

// find returns the index of a name, or -1.
func (s *Scanner) find(name []byte) int {
	h := hashName(name) >> s.shift
	for {
		i := int(s.table[h])
		if i < 0 || s.names[i] == string(name) {
			return i
		}
		h = (h + 1) & uint64(len(s.table)-1)
	}
}

// hashName mixes length, first and last eight bytes; feature names differ there.
func hashName(b []byte) uint64 {
	n := len(b)
	var x, y uint64
	if n >= 8 {
		x, y = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	} else {
		for _, c := range b {
			x = x<<8 | uint64(c)
		}
	}
	return (x ^ bits.RotateLeft64(y, 29) ^ uint64(n)) * 0x9e3779b97f4a7c15
}
