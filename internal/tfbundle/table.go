package tfbundle

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/snappy"

	"github.com/monolith-go/monolith/internal/tfrecord"
)

const (
	footerLen  = 48
	tableMagic = 0xdb4775248b80fb57
	trailerLen = 5 // of a block: how it is compressed, checksum
	// maxBlock bounds what a block holds; TensorFlow's have 256 KiB and a little more.
	maxBlock = 64 << 20
)

// readTable calls each with the keys of a table in their order. Errors name the byte.
func readTable(raw []byte, each func(key string, value []byte) error) error {
	if len(raw) < footerLen {
		return fmt.Errorf("%d bytes, of which the last %d say where its parts are: it was not copied whole", len(raw), footerLen)
	}
	footer := raw[len(raw)-footerLen:]
	if got := binary.LittleEndian.Uint64(footer[footerLen-8:]); got != tableMagic {
		return fmt.Errorf("it ends with %016x, not with %016x: it is no such table, or was not copied whole", got, uint64(tableMagic))
	}
	_, footer, err := handle(footer) // of what describes the table, which holds nothing
	if err != nil {
		return err
	}
	at, _, err := handle(footer)
	if err != nil {
		return err
	}
	index, err := block(raw, at)
	if err != nil {
		return err
	}
	return entries(index, func(_ string, value []byte) error {
		at, _, err := handle(value)
		if err != nil {
			return err
		}
		b, err := block(raw, at)
		if err != nil {
			return err
		}
		return entries(b, each)
	})
}

// span is where a block is.
type span struct{ offset, size uint64 }

func handle(b []byte) (span, []byte, error) {
	var s span
	for _, v := range []*uint64{&s.offset, &s.size} {
		n, used := binary.Uvarint(b)
		if used <= 0 {
			return s, nil, errors.New("the place of a block is no pair of numbers")
		}
		*v, b = n, b[used:]
	}
	return s, b, nil
}

// block returns what a block holds.
func block(raw []byte, at span) ([]byte, error) {
	n := uint64(len(raw))
	if at.offset > n || at.size > n-at.offset || n-at.offset-at.size < trailerLen {
		return nil, fmt.Errorf("a block of %d bytes at byte %d lies outside of the file", at.size, at.offset)
	}
	b := raw[at.offset:][:at.size+trailerLen]
	want := binary.LittleEndian.Uint32(b[at.size+1:])
	if got := tfrecord.Checksum(b[:at.size+1]); got != want {
		return nil, fmt.Errorf("block at byte %d: crc mismatch (want %08x, got %08x)", at.offset, want, got)
	}
	switch b[at.size] {
	case 0:
		return b[:at.size], nil
	case 1:
		if size, err := snappy.DecodedLen(b[:at.size]); err != nil || size > maxBlock {
			return nil, fmt.Errorf("block at byte %d: it is not snappy, or holds more than %d bytes", at.offset, maxBlock)
		}
		out, err := snappy.Decode(nil, b[:at.size])
		if err != nil {
			return nil, fmt.Errorf("block at byte %d: it is not snappy", at.offset)
		}
		return out, nil
	}
	return nil, fmt.Errorf("block at byte %d: compression %d is not known", at.offset, b[at.size])
}

// entries calls each with the keys of a block: each key is a number of bytes of the one before it, and more.
func entries(b []byte, each func(key string, value []byte) error) error {
	errShort := errors.New("a block ends within an entry")
	if len(b) < 4 {
		return errShort
	}
	restarts := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	if restarts > uint64(len(b)-4)/4 {
		return errShort
	}
	b = b[:uint64(len(b)-4)-4*restarts]
	var key []byte
	for len(b) > 0 {
		var n [3]uint64
		for i := range n {
			v, used := binary.Uvarint(b)
			if used <= 0 {
				return errShort
			}
			n[i], b = v, b[used:]
		}
		shared, more, size := n[0], n[1], n[2]
		if shared > uint64(len(key)) || more > uint64(len(b)) || size > uint64(len(b))-more {
			return errShort
		}
		key = append(key[:shared], b[:more]...)
		if err := each(string(key), b[more:][:size]); err != nil {
			return err
		}
		b = b[more+size:]
	}
	return nil
}
