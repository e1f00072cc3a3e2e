package kafkasource

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/compress"
)

// rawBatch builds a record batch.
type rawBatch struct {
	base, producer int64
	attrs          int16
	count          int32 // of records; the batch was written with delta+1
	delta          int32
	body           []byte
}

func (r rawBatch) bytes() []byte {
	var e encoder
	e.int64(r.base)
	e.int32(0)
	e.int32(5) // leader epoch
	e.int8(2)
	e.int32(0)
	e.int16(r.attrs)
	e.int32(r.delta)
	e.int64(1000)
	e.int64(2000)
	e.int64(r.producer)
	e.int16(0)
	e.int32(0)
	e.int32(r.count)
	e.bytes(r.body)
	binary.BigEndian.PutUint32(e.b[8:], uint32(len(e.b)-batchPrefix))
	binary.BigEndian.PutUint32(e.b[batchCRCAt:], crc32.Checksum(e.b[batchAttrsAt:], castagnoli))
	return e.b
}

// oneRecord is a record with key and value at an offset delta.
func oneRecord(delta int64, key, value []byte) []byte {
	b := []byte{0}
	b = binary.AppendVarint(b, 7) // time delta
	b = binary.AppendVarint(b, delta)
	for _, v := range [][]byte{key, value} {
		if v == nil {
			b = binary.AppendVarint(b, -1)
		} else {
			b = append(binary.AppendVarint(b, int64(len(v))), v...)
		}
	}
	b = binary.AppendVarint(b, 0) // headers
	return append(binary.AppendVarint(nil, int64(len(b))), b...)
}

func data(base, producer int64, n int32, attrs int16) rawBatch {
	var body []byte
	for i := range n {
		body = append(body, oneRecord(int64(i), nil, []byte{'v'})...)
	}
	return rawBatch{base: base, producer: producer, attrs: attrs, count: n, delta: n - 1, body: body}
}

func marker(base, producer int64, commit int16) rawBatch {
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(commit))
	return rawBatch{base: base, producer: producer, attrs: attrTransactional | attrControl, count: 1, body: oneRecord(0, key, []byte{0, 0, 0, 0, 0, 0})}
}

func TestScanIsolation(t *testing.T) {
	t.Parallel()
	const tx = attrTransactional
	log := []rawBatch{
		data(0, 1, 2, tx), data(2, 2, 1, tx), data(3, -1, 1, 0), marker(4, 1, 0), // 1 aborts
		data(5, 1, 1, tx), marker(6, 1, 1), // 1 commits
		marker(7, 2, 0), // 2 aborts
		data(8, 1, 1, tx), data(9, 2, 2, tx), marker(11, 2, 1), marker(12, 1, 0),
	}
	aborted := []abortedTxn{{1, 8}, {2, 2}, {1, 0}} // in no order
	delivered := func(pos int64, committed bool) (out []int64) {
		var raw []byte
		for _, b := range log {
			if b.base+int64(b.delta) >= pos {
				raw = append(raw, b.bytes()...)
			}
		}
		// A broker names the transactions whose markers come at pos or later.
		var named []abortedTxn
		for _, a := range aborted {
			ends := map[abortedTxn]int64{{1, 0}: 4, {2, 2}: 7, {1, 8}: 12}[a]
			if ends >= pos {
				named = append(named, a)
			}
		}
		got, err := scan(raw, pos, named, committed)
		if err != nil || got.next != 13 || got.term != 5 || got.hole != (span{}) || got.cut {
			t.Errorf("from %d: %+v, %v", pos, got, err)
		}
		for _, b := range got.batches {
			if !b.skip {
				out = append(out, b.base)
			}
		}
		return out
	}
	for pos, want := range map[int64][]int64{0: {3, 5, 9}, 1: {3, 5, 9}, 3: {3, 5, 9}, 4: {5, 9}, 5: {5, 9}, 6: {9}, 9: {9}, 10: {9}, 11: nil} {
		if diff := gocmp.Diff(want, delivered(pos, true)); diff != "" {
			t.Errorf("committed from %d: %s", pos, diff)
		}
	}
	if diff := gocmp.Diff([]int64{0, 2, 3, 5, 8, 9}, delivered(0, false)); diff != "" {
		t.Errorf("uncommitted: %s", diff)
	}
}

func TestScanFaults(t *testing.T) {
	t.Parallel()
	join := func(bs ...rawBatch) (out []byte) {
		for _, b := range bs {
			out = append(out, b.bytes()...)
		}
		return out
	}
	good := join(data(0, -1, 3, 0))
	spoilt := func(at int, v byte) []byte {
		b := slices.Clone(good)
		b[at] = v
		return b
	}
	long := rawBatch{base: math.MaxInt64 - 1, delta: 5, count: 1}
	for _, c := range []struct {
		name   string
		raw    []byte
		reason string
	}{
		{"checksum", spoilt(len(good)-1, 0xff), reasonChecksum},
		{"checksum itself", spoilt(batchCRCAt, 0xff), reasonChecksum},
		{"length", spoilt(11, 3), reasonCorrupt},
		{"negative length", spoilt(8, 0x80), reasonCorrupt},
		{"format 0", spoilt(batchMagicAt, 0), reasonOldFormat},
		{"format 3", spoilt(batchMagicAt, 3), reasonCorrupt},
		{"backwards", join(data(5, -1, 3, 0), data(7, -1, 1, 0)), reasonCorrupt},
		{"overflow", long.bytes(), reasonCorrupt},
		{"more records than offsets", rawBatch{count: 3, delta: 1}.bytes(), reasonCorrupt},
		{"negative delta", rawBatch{count: 0, delta: -1}.bytes(), reasonCorrupt},
	} {
		_, err := scan(c.raw, 0, nil, true)
		var bad *batchError
		if !errors.As(err, &bad) || bad.reason != c.reason {
			t.Errorf("%s: %v, want %s", c.name, err, c.reason)
		}
	}
	for n := range len(good) {
		got, err := scan(good[:n], 0, nil, true)
		if err != nil || len(got.batches) != 0 || got.next != 0 || got.cut != (n > 0) {
			t.Errorf("first %d bytes: %+v, %v", n, got, err)
		}
	}
	for _, c := range []struct {
		raw  []byte
		pos  int64
		hole span
		next int64 // behind what the batch was written with, or a reader would ask for the same batch for ever
	}{
		{join(data(0, -1, 3, 0), data(3, -1, 1, 0)), 0, span{}, 4},
		{join(data(0, -1, 3, 0), data(3, -1, 1, 0)), 2, span{}, 4},
		{join(data(0, -1, 3, 0), data(4, -1, 1, 0)), 1, span{3, 4}, 5},
		{join(data(5, -1, 3, 0)), 2, span{2, 5}, 8},
		{join(rawBatch{base: 2, delta: 4, count: 3}), 4, span{4, 7}, 7},
		{join(rawBatch{base: 2, delta: 4}), 2, span{2, 7}, 7}, // everything in it was compacted away
	} {
		got, err := scan(c.raw, c.pos, nil, true)
		if err != nil || got.hole != c.hole || got.next != c.next {
			t.Errorf("from %d: hole %v, next %d, %v; want %v, %d", c.pos, got.hole, got.next, err, c.hole, c.next)
		}
	}
}

// FuzzScan feeds scan and everything behind it. The checksum is put right first, or nothing would get past it.
func FuzzScan(f *testing.F) {
	f.Add(data(0, -1, 3, 0).bytes(), int64(0), true)
	f.Add(append(data(4, 9, 2, attrTransactional).bytes(), marker(6, 9, 0).bytes()...), int64(5), true)
	for codec := int16(1); codec <= 4; codec++ {
		b := data(3, -1, 2, codec)
		var buf bytes.Buffer
		w := compress.Compression(codec).Codec().NewWriter(&buf)
		if _, err := w.Write(b.body); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		b.body = buf.Bytes()
		f.Add(b.bytes(), int64(3), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, pos int64, committed bool) {
		raw = slices.Clone(raw)
		for rest := raw; len(rest) >= batchOverhead; {
			size := batchPrefix + int64(int32(binary.BigEndian.Uint32(rest[8:])))
			if size < batchOverhead || size > int64(len(rest)) {
				break
			}
			binary.BigEndian.PutUint32(rest[batchCRCAt:], crc32.Checksum(rest[batchAttrsAt:size], castagnoli))
			rest = rest[size:]
		}
		got, err := scan(raw, pos, []abortedTxn{{9, 4}}, committed)
		if err != nil {
			if _, ok := errors.AsType[*batchError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if got.next < pos {
			t.Fatalf("went back from %d to %d", pos, got.next)
		}
		var scratch bytes.Buffer
		for _, b := range got.batches {
			body, err := b.unpack(&scratch, 1<<16)
			if err != nil {
				continue
			}
			if b.attrs&attrCodec != 0 && len(body) > 1<<16 {
				t.Fatalf("unpacked %d bytes", len(body))
			}
			it, n := records{body, b.count}, 0
			for it.left > 0 {
				r, err := it.next()
				if err != nil {
					break
				}
				b.micros(&r)
				n += len(r.key) + len(r.value)
			}
			if n > len(body) {
				t.Fatalf("%d bytes of records in %d", n, len(body))
			}
		}
	})
}

func FuzzDecodeFetch(f *testing.F) {
	for _, v := range []int16{4, 11, 13} {
		f.Add(v, []byte(strings.Repeat("\x00", 80)))
		f.Add(v, []byte(strings.Repeat("\x02", 200)))
	}
	f.Fuzz(func(t *testing.T, version int16, b []byte) {
		if version < fetchMinVersion || version > fetchIDVersion {
			return
		}
		r, err := decodeFetch(b, version, 0)
		if err == nil && len(r.records)+16*len(r.aborted) > len(b) {
			t.Fatalf("%d bytes of records and %d transactions in %d bytes", len(r.records), len(r.aborted), len(b))
		}
	})
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add(int16(10), []byte(strings.Repeat("\x00", 80)))
	f.Add(int16(12), []byte(strings.Repeat("\x02", 200)))
	f.Fuzz(func(t *testing.T, version int16, b []byte) {
		c, err := decodeMetadata(b, version)
		if err == nil && 26*len(c.topics) > len(b) {
			t.Fatalf("%d topics in %d bytes", len(c.topics), len(b))
		}
	})
}

// TestScram runs the example of RFC 7677, section 3.
func TestScram(t *testing.T) {
	t.Parallel()
	m := newScram("SCRAM-SHA-256", sha256.New, "user", "pencil")
	m.nonce = func() string { return "rOprNGfwEbeRWgbNEkqO" }
	const (
		first  = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
		server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
		final  = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
		ok     = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
	)
	s, got, err := m.Start(context.Background()) //nolint:usetesting // nothing here waits
	if err != nil || string(got) != first {
		t.Fatalf("%q, %v", got, err)
	}
	done, got, err := s.Next(t.Context(), []byte(server))
	if done || err != nil || string(got) != final {
		t.Fatalf("%v %q %v", done, got, err)
	}
	if done, _, err = s.Next(t.Context(), []byte(ok)); !done || err != nil {
		t.Errorf("%v %v", done, err)
	}
	for name, challenges := range map[string][]string{
		"server without the password": {server, "v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="},
		"refusal":                     {server, "e=invalid-proof"},
		"other nonce":                 {strings.Replace(server, "rOpr", "xOpr", 1)},
		"no nonce of the server's":    {"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		"few iterations":              {strings.Replace(server, "4096", "1", 1)},
		"too many iterations":         {strings.Replace(server, "4096", "2000000000", 1)},
		"no salt":                     {strings.Replace(server, "s=", "t=", 1)},
		"nothing":                     {""},
	} {
		s, _, err := m.Start(t.Context())
		for _, c := range challenges {
			if err == nil {
				_, _, err = s.Next(t.Context(), []byte(c))
			}
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	m.user = "a=b,c"
	if _, got, _ := m.Start(t.Context()); string(got) != "n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO" {
		t.Errorf("%q", got)
	}
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"ratings", "ratings", 0}, {"ratngs", "ratings", 1}, {"kitten", "sitting", 3}} {
		if got := cmp.Or(editDistance(c.a, c.b), 0); got != c.want || editDistance(c.b, c.a) != c.want {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestMicros(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b    batch
		d    int64
		want int64
	}{
		{batch{firstTime: 1000, maxTime: 9}, 5, 1_005_000},
		{batch{firstTime: 1000, maxTime: 9, attrs: attrLogAppendTime}, 5, 9000},
		{batch{firstTime: -1}, 0, 0},
		{batch{firstTime: math.MaxInt64}, 0, math.MaxInt64 / 1000 * 1000},
		{batch{firstTime: math.MinInt64}, 0, math.MinInt64 / 1000 * 1000},
	} {
		if got := c.b.micros(&record{timeDelta: c.d}); got != c.want {
			t.Errorf("%d+%d: %d, want %d", c.b.firstTime, c.d, got, c.want)
		}
	}
}

func TestSplitNames(t *testing.T) {
	t.Parallel()
	for _, p := range []int32{0, 3, 99999} {
		name := splitName("a-1", p)
		if got, ok := partitionOf("a-1", name); !ok || got != p || len(name) != len("a-1-00000") {
			t.Errorf("%q: %d, %v", name, got, ok)
		}
	}
	if splitName("t", 9) >= splitName("t", 10) {
		t.Error("names do not sort by partition")
	}
}
