package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

type entry struct {
	kind    byte
	payload string
}

// slowRead is the reader of a first segment as the package comment describes it, for the sound part at its beginning: what shard 0
// has behind its last border.
func slowRead(b []byte, identity string) (out []entry, end int) {
	le := binary.LittleEndian
	sum := func(parts ...[]byte) uint32 {
		return crc32.Checksum(slices.Concat(parts...), crc32.MakeTable(crc32.Castagnoli))
	}
	h := 52 + len(identity)
	if len(b) < h+4 || string(b[:8]) != "MONOWAL\n" || string(b[52:h]) != identity || int(le.Uint32(b[48:])) != len(identity) || le.Uint32(b[h:]) != sum(b[:h]) {
		return nil, 0
	}
	end = h + 4
	began := false
	for lsn := le.Uint64(b[32:]); ; lsn++ {
		rest := b[end:]
		if len(rest) < 30 || uint64(le.Uint32(rest[4:])) > uint64(len(rest)-30) || le.Uint64(rest[8:]) != lsn {
			return out, end
		}
		n := 30 + int(le.Uint32(rest[4:]))
		if le.Uint32(rest) != sum(b[40:48], rest[4:n]) {
			return out, end
		}
		switch shard, typ := le.Uint32(rest[24:]), rest[28]; {
		case shard != 0:
		case typ > 0:
			out, began = nil, true
		case began:
			out = append(out, entry{rest[29], string(rest[30:n])})
		}
		end += n
	}
}

func FuzzSegment(f *testing.F) {
	rec := func(shard uint32, payload string) wal.Entry {
		return wal.Entry{Shard: shard, Kind: 7, Payload: []byte(payload)}
	}
	one := wal.EncodeSegment("fuzz", 1, 1, 42, 0, wal.ResetOf(0, 0), rec(0, "first"), rec(0, ""), rec(1, "of another"), rec(0, "fourth record"))
	f.Add(one, 0, byte(0))
	f.Add(one, 60, byte(1))
	f.Add(one[:len(one)-3], 0, byte(0))
	f.Add(one[:20], 0, byte(0))
	f.Add(append(slices.Clone(one), make([]byte, 600)...), 80, byte(9))
	f.Add(wal.EncodeSegment("other", 1, 1, 42, 0), 0, byte(0))
	f.Add(wal.EncodeSegment("fuzz", 1, 9, 1, 8, wal.BorderOf(0, 5), rec(0, string(make([]byte, 2000))), wal.BorderOf(1, 5), rec(0, "x"), wal.BorderOf(0, 5)), 700, byte(3))
	f.Add(wal.EncodeSegment("fuzz", 1, 9, 1, 8, wal.BorderOf(0, 5), wal.Entry{Type: 3}), 0, byte(0))
	f.Add(wal.Reuse(append(slices.Clone(one), one...)), 0, byte(0))
	f.Add(wal.Reuse(append(slices.Clone(one), wal.EncodeSegment("fuzz", 1, 6, 43, 5, rec(0, "of another life"))[60:]...)), 90, byte(1))
	f.Add(append(wal.Reuse(one[:len(one)-20]), one...), len(one)-30, byte(4))
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		data = slices.Clone(data)
		if at >= 0 && at < len(data) {
			data[at] ^= flip
		}
		d := newDisk()
		d.names["/log/wal-0000000000000001.log"] = &node{data: data}
		o := wal.Options{Disk: d, Dir: "/log", Identity: "fuzz"}
		l, err := openLog(o)
		if err != nil {
			if !errors.Is(err, wal.ErrIdentity) && !errors.Is(err, wal.ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		base := uint64(0)
		if b := l.Bases(); len(b) > 0 {
			base = b[0]
		}
		var got []entry
		tail, err := l.Replay(t.Context(), base, func(kind byte, p []byte) error {
			got = append(got, entry{kind, string(p)})
			return nil
		})
		if err != nil {
			if !errors.Is(err, wal.ErrCorrupt) && !errors.Is(err, wal.ErrBase) {
				t.Fatal(err)
			}
			return
		}
		want, end := slowRead(data, "fuzz")
		if !slices.Equal(got, want) {
			t.Fatalf("%d records, want %d", len(got), len(want))
		}
		// Of a file that was used before, what follows may be anybody's.
		reused := binary.LittleEndian.Uint32(data[12:]) != 0
		torn, most := int(tail.TornBytes), len(bytes.TrimRight(data[end:], "\x00"))
		if int64(end) != tail.Offset || torn != most && !reused || torn < 0 || torn > len(data)-end {
			t.Fatalf("%+v, want offset %d of %d", tail, end, len(data))
		}
		// What was taken for good can be continued with.
		if err := l.Begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(1, []byte("more")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = openLog(o); err != nil {
			t.Fatal(err)
		}
		if again, err := l.Replay(t.Context(), base, func(byte, []byte) error { return nil }); err != nil || again.Records != tail.Records+1 || again.TornBytes != 0 {
			t.Fatalf("%+v, %v, want one record more than %+v", again, err, tail)
		}
	})
}
