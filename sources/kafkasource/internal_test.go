package kafkasource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"github.com/segmentio/kafka-go/compress"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
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
	var e kafkawire.Encoder
	e.Int64(r.base)
	e.Int32(0)
	e.Int32(5) // leader epoch
	e.Int8(2)
	e.Int32(0)
	e.Int16(r.attrs)
	e.Int32(r.delta)
	e.Int64(1000)
	e.Int64(2000)
	e.Int64(r.producer)
	e.Int16(0)
	e.Int32(0)
	e.Int32(r.count)
	e.Bytes(r.body)
	binary.BigEndian.PutUint32(e.B[8:], uint32(len(e.B)-batchPrefix))
	binary.BigEndian.PutUint32(e.B[batchCRCAt:], crc32.Checksum(e.B[batchAttrsAt:], castagnoli))
	return e.B
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
	aborted := []kafkawire.AbortedTxn{{Producer: 1, First: 8}, {Producer: 2, First: 2}, {Producer: 1, First: 0}} // in no order
	delivered := func(pos int64, committed bool) (out []int64) {
		var raw []byte
		for _, b := range log {
			if b.base+int64(b.delta) >= pos {
				raw = append(raw, b.bytes()...)
			}
		}
		// A broker names the transactions whose markers come at pos or later.
		var named []kafkawire.AbortedTxn
		for _, a := range aborted {
			ends := map[kafkawire.AbortedTxn]int64{{Producer: 1, First: 0}: 4, {Producer: 2, First: 2}: 7, {Producer: 1, First: 8}: 12}[a]
			if ends >= pos {
				named = append(named, a)
			}
		}
		got := scan(raw, pos, -1, named, committed)
		if got.next != 13 || got.term != 5 || got.hole != (span{}) || got.partial {
			t.Errorf("from %d: %+v", pos, got)
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
		next   int64 // where it continues
	}{
		{"checksum", spoilt(len(good)-1, 0xff), reasonChecksum, 3},
		{"checksum itself", spoilt(batchCRCAt, 0xff), reasonChecksum, 3},
		{"checksum, and a good one behind it", append(spoilt(len(good)-1, 0xff), data(3, -1, 2, 0).bytes()...), reasonChecksum, 5},
		{"last delta", spoilt(26, 0x7f), reasonChecksum, 128},
		{"last delta, and a good one behind it", append(spoilt(26, 0x7f), data(3, -1, 2, 0).bytes()...), reasonChecksum, 5},
		{"negative last delta", spoilt(23, 0x80), reasonChecksum, 1},
		{"length", spoilt(11, 3), reasonCorrupt, 1},
		{"negative length", spoilt(8, 0x80), reasonCorrupt, 1},
		{"format 0", spoilt(batchMagicAt, 0), reasonOldFormat, 1},
		{"format 3", spoilt(batchMagicAt, 3), reasonCorrupt, 1},
		{"backwards", join(data(5, -1, 3, 0), data(7, -1, 1, 0)), reasonCorrupt, 9},
		{"overflow", long.bytes(), reasonCorrupt, 1},
		{"more records than offsets", rawBatch{count: 3, delta: 1}.bytes(), reasonCorrupt, 1},
		{"negative delta", rawBatch{count: 0, delta: -1}.bytes(), reasonCorrupt, 1},
	} {
		got := scan(c.raw, 0, -1, nil, true)
		if !slices.ContainsFunc(got.batches, func(b batch) bool { return b.bad != nil && b.bad.reason == c.reason }) {
			t.Errorf("%s: %+v, want %s", c.name, got, c.reason)
		}
		if got.next != c.next {
			t.Errorf("%s: continues at %d, want %d", c.name, got.next, c.next)
		}
	}
	for n := range len(good) {
		got := scan(good[:n], 0, -1, nil, true)
		if len(got.batches) != 0 || got.next != 0 || got.partial != (n > 0) {
			t.Errorf("first %d bytes: %+v", n, got)
		}
	}
	for _, c := range []struct {
		raw  []byte
		pos  int64
		hole span
		next int64 // after what the batch was written with, or a reader would ask for the same batch for ever
	}{
		{join(data(0, -1, 3, 0), data(3, -1, 1, 0)), 0, span{}, 4},
		{join(data(0, -1, 3, 0), data(3, -1, 1, 0)), 2, span{}, 4},
		{join(data(0, -1, 3, 0), data(4, -1, 1, 0)), 1, span{3, 4}, 5},
		{join(data(5, -1, 3, 0)), 2, span{2, 5}, 8},
		{join(rawBatch{base: 2, delta: 4, count: 3}), 4, span{4, 7}, 7},
		{join(rawBatch{base: 2, delta: 4}), 2, span{2, 7}, 7}, // everything in it was compacted away
	} {
		got := scan(c.raw, c.pos, -1, nil, true)
		if got.hole != c.hole || got.next != c.next {
			t.Errorf("from %d: hole %v, next %d; want %v, %d", c.pos, got.hole, got.next, c.hole, c.next)
		}
	}
}

// FuzzScan feeds scan and everything after it. The checksum is put right first, or nothing would get past it.
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
		pos = max(pos, 0)
		got := scan(raw, pos, -1, []kafkawire.AbortedTxn{{Producer: 9, First: 4}}, committed)
		if got.next < pos || len(got.batches) > 0 && got.next == pos {
			t.Fatalf("from %d to %d with %d batches", pos, got.next, len(got.batches))
		}
		before := allocated()
		defer func() {
			if n := allocated() - before; n > 64<<20 {
				t.Fatalf("%d bytes were allocated for %d", n, len(raw))
			}
		}()
		u := kafkawire.Unpacker{Limit: 1 << 16}
		defer u.Close()
		for _, b := range got.batches {
			if b.bad != nil {
				continue
			}
			body, bad := unpack(&u, &b)
			if bad != nil {
				continue
			}
			if b.attrs&attrCodec != 0 && len(body) > 1<<16 {
				t.Fatalf("unpacked %d bytes", len(body))
			}
			it, n := kafkawire.Records{Body: body, Left: b.count}, 0
			for it.Left > 0 {
				r, err := it.Next()
				if err != nil {
					break
				}
				b.micros(&r)
				n += len(r.Key) + len(r.Value)
			}
			if n > len(body) {
				t.Fatalf("%d bytes of records in %d", n, len(body))
			}
		}
	})
}

// allocated is the number of bytes that were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestUnpackIsBounded: what a batch says of its size is believed up to the limit, before anything is allocated for it.
func TestUnpackIsBounded(t *testing.T) { // not parallel: it measures
	const limit = 64 << 10
	pack := func(codec int16, b []byte) []byte {
		var buf bytes.Buffer
		w := compress.Compression(codec).Codec().NewWriter(&buf)
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	xerial := func(chunks ...[]byte) []byte { // the framing that the Java clients put around snappy
		out := slices.Concat([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, []byte{0, 0, 0, 1, 0, 0, 0, 1})
		for _, c := range chunks {
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(c))), c...)
		}
		return out
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x41} // snappy: 4 GiB
	half := snappy.Encode(nil, make([]byte, limit/2+1))
	// A zstd frame whose header asks for a window of 512 MiB.
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x98, 0x01, 0x00, 0x00}
	for _, c := range []struct {
		name   string
		codec  int16
		body   []byte
		reason string
	}{
		{"snappy that announces 4 GiB", kafkawire.CodecSnappy, huge, reasonTooLarge},
		{"a frame that announces 4 GiB", kafkawire.CodecSnappy, xerial(huge), reasonTooLarge},
		{"two frames, each within the limit", kafkawire.CodecSnappy, xerial(half, half), reasonTooLarge},
		{"a frame longer than the batch", kafkawire.CodecSnappy, append(xerial(), 0xff, 0xff, 0xff, 0xf0, 1), reasonCorrupt},
		{"snappy that cannot hold so much", kafkawire.CodecSnappy, []byte{0x80, 0x80, 0x02, 0x00, 0x41}, reasonCorrupt},
		{"gzip", kafkawire.CodecGzip, pack(kafkawire.CodecGzip, make([]byte, 50*limit)), reasonTooLarge},
		{"snappy", kafkawire.CodecSnappy, snappy.Encode(nil, make([]byte, 50*limit)), reasonTooLarge},
		{"lz4", kafkawire.CodecLZ4, pack(kafkawire.CodecLZ4, make([]byte, 50*limit)), reasonTooLarge},
		{"zstd", kafkawire.CodecZstd, pack(kafkawire.CodecZstd, make([]byte, 50*limit)), reasonTooLarge},
		{"zstd window", kafkawire.CodecZstd, window, reasonTooLarge},
		{"unknown codec", 7, huge, reasonCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := kafkawire.Unpacker{Limit: limit}
			defer u.Close()
			before := allocated()
			_, err := unpack(&u, &batch{attrs: c.codec, body: c.body})
			if err == nil || err.reason != c.reason {
				t.Errorf("%v, want %s", err, c.reason)
			}
			if n := allocated() - before; n > 24<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
	u := kafkawire.Unpacker{Limit: limit}
	defer u.Close()
	want := bytes.Repeat([]byte("monolith"), limit/8)
	for range 2 { // decompressors are used again
		for codec := int16(0); codec <= kafkawire.CodecZstd; codec++ {
			body := want
			if codec != kafkawire.CodecNone {
				body = pack(codec, want)
			}
			if got, err := unpack(&u, &batch{attrs: codec, body: body}); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, %v", kafkawire.CodecNames[codec], len(got), err)
			}
		}
		got, err := unpack(&u, &batch{attrs: kafkawire.CodecSnappy, body: xerial(snappy.Encode(nil, want[:limit/2]), snappy.Encode(nil, want[limit/2:]))})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("two frames: %d bytes, %v", len(got), err)
		}
	}
}

// FuzzAnswers feeds every kafkawire.Decoder of a broker's answers: bounded memory, no panic.
func FuzzAnswers(f *testing.F) {
	huge := []byte{0, 0, 0, 0, 0x5d, 0x3e, 0xaa, 0xac, 0, 0, 0, 0}
	f.Add(huge)
	f.Add(huge[4:])
	f.Add([]byte{0, 0, 0x5d, 0x3e, 0xaa, 0xac})
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x01", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		for _, version := range []int16{kafkawire.ListOffsetsOld, kafkawire.ListOffsetsWithTerm} {
			_, _ = kafkawire.DecodeListOffsets(b, version)
		}
		for _, version := range []int16{kafkawire.FetchMinVersion, kafkawire.FetchNameVersion, kafkawire.FetchIDVersion} {
			_, _ = kafkawire.DecodeFetch(b, version, 0)
			_ = kafkawire.PeekFetch(b, version, 0)
		}
		_, _ = decodeEpochEnd(b)
		_, _, _ = decodeTopicConfig(b, "cleanup.policy")
		_, _, _ = kafkawire.DecodeFindCoordinator(b)
		_, _ = decodeOffsetCommit(b, offsetCommitVersion)
		_, _ = decodeOffsetCommit(b, offsetCommitWithID)
		if n := allocated() - before; n > uint64(1<<20+200*len(b)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(b))
		}
	})
}

func FuzzDecodeFetch(f *testing.F) {
	for _, v := range []int16{4, 11, 13} {
		f.Add(v, []byte(strings.Repeat("\x00", 80)))
		f.Add(v, []byte(strings.Repeat("\x02", 200)))
	}
	f.Fuzz(func(t *testing.T, version int16, b []byte) {
		if version < kafkawire.FetchMinVersion || version > kafkawire.FetchIDVersion {
			return
		}
		r, err := kafkawire.DecodeFetch(b, version, 0)
		if err == nil && len(r.Records)+16*len(r.Aborted) > len(b) {
			t.Fatalf("%d bytes of records and %d transactions in %d bytes", len(r.Records), len(r.Aborted), len(b))
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
		if got := c.b.micros(&kafkawire.Record{TimeDelta: c.d}); got != c.want {
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

// TestRotatedPassword: a connection that begins after the file has changed logs in with what it holds then.
func TestRotatedPassword(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	put := func(password string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	_, m, err := Options{SASL: &SASL{Mechanism: Plain, User: "u", PasswordFile: path}}.Security()
	if err != nil || m.Name() != "PLAIN" {
		t.Fatalf("%v, %v", m, err)
	}
	for _, password := range []string{"old", "new"} {
		put(password)
		if _, first, err := m.Start(t.Context()); err != nil || string(first) != "\x00u\x00"+password {
			t.Errorf("with %q in the file: %q, %v", password, first, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Start(t.Context()); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("without the file: %v", err)
	}
}
