package parquetsource_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A file is crafted from Thrift's compact protocol up, so that anything in it can be a lie.

// field is a field of a Thrift structure, in the order of ids.
type thriftField struct {
	id   int
	typ  byte
	body []byte
}

func zigzag(v int64) []byte { return binary.AppendVarint(nil, v) }

func i32(id int, v int64) thriftField { return thriftField{id, 5, zigzag(v)} }
func i64(id int, v int64) thriftField { return thriftField{id, 6, zigzag(v)} }
func bin(id int, s string) thriftField {
	return thriftField{id, 8, append(binary.AppendUvarint(nil, uint64(len(s))), s...)}
}
func sub(id int, f ...thriftField) thriftField { return thriftField{id, 12, structure(f...)} }

// list is a list of items of a type; claims, if not 0, is how many it says there are.
func list(id int, typ byte, claims int, items ...[]byte) thriftField {
	if claims == 0 {
		claims = len(items)
	}
	b := binary.AppendUvarint([]byte{0xf0 | typ}, uint64(claims))
	return thriftField{id, 9, append(b, bytes.Join(items, nil)...)}
}

func structure(fields ...thriftField) (b []byte) {
	last := 0
	for _, f := range fields {
		b = append(append(b, byte(f.id-last)<<4|f.typ), f.body...)
		last = f.id
	}
	return append(b, 0)
}

// Physical types and codecs of parquet.thrift.
const (
	pqInt64, pqByteArray        = 2, 6
	pqSnappy, pqGzip, pqZstd    = 1, 2, 6
	pqPlain, pqRLE, pqDict      = 0, 3, 8
	pqDelta, pqDeltaArray       = 5, 7
	pqDataPage, pqDictPage, pqI = 0, 2, 12
)

// crafted is a file of one column "x" with one row group.
type crafted struct {
	physical, codec, rows, values int64
	repetition                    int64 // 0 required, 1 optional, 2 repeated
	pages                         [][]byte
	at                            func(start int64) int64 // where the chunk says that it begins
	schema                        [][]byte                // in place of the column
	groups                        int                     // row groups that the footer claims
	index                         []byte                  // offset index
	footerBytes                   uint32                  // that the tail claims
}

func (c crafted) file() []byte {
	b := []byte("PAR1")
	start := int64(len(b))
	for _, p := range c.pages {
		b = append(b, p...)
	}
	size := int64(len(b)) - start
	at := start
	if c.at != nil {
		at = c.at(start)
	}
	indexAt := int64(len(b))
	b = append(b, c.index...)
	schema := c.schema
	if schema == nil {
		schema = [][]byte{
			structure(bin(4, "root"), i32(5, 1)),
			structure(i32(1, c.physical), i32(3, c.repetition), bin(4, "x")),
		}
	}
	chunk := []thriftField{
		i64(2, at), sub(3, i32(1, c.physical), list(2, 5, 0, zigzag(pqPlain)), list(3, 8, 0, append([]byte{1}, "x"...)),
			i32(4, c.codec), i64(5, c.values), i64(6, size), i64(7, size), i64(9, at)),
	}
	if c.index != nil {
		chunk = append(chunk, i64(4, indexAt), i32(5, int64(len(c.index))))
	}
	footer := structure(i32(1, 1), list(2, pqI, 0, schema...), i64(3, c.rows),
		list(4, pqI, c.groups, structure(list(1, pqI, 0, structure(chunk...)), i64(2, size), i64(3, c.rows))))
	b = append(b, footer...)
	if c.footerBytes == 0 {
		c.footerBytes = uint32(len(footer))
	}
	return append(binary.LittleEndian.AppendUint32(b, c.footerBytes), "PAR1"...)
}

// page is a page whose header has the given values: sizes of 0 are those of the body.
func page(kind, values, encoding, flat, packed int64, body []byte) []byte {
	if flat == 0 {
		flat = int64(len(body))
	}
	if packed == 0 {
		packed = int64(len(body))
	}
	inner := sub(5, i32(1, values), i32(2, encoding), i32(3, pqRLE), i32(4, pqRLE))
	if kind == pqDictPage {
		inner = sub(7, i32(1, values), i32(2, encoding))
	}
	head := structure(i32(1, kind), i32(2, flat), i32(3, packed), i32(4, int64(int32(crc32.ChecksumIEEE(body)))), inner)
	return append(head, body...)
}

func int64s(n int) (b []byte) {
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

// packedZeros is so many mebibytes of zeros, compressed.
func packedZeros(tb testing.TB, codec, mebibytes int64) []byte {
	tb.Helper()
	var b bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Close() error
	}
	if codec == pqGzip {
		w, _ = gzip.NewWriterLevel(&b, 1)
	} else {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedFastest)); err != nil {
			tb.Fatal(err)
		}
	}
	zeros := make([]byte, 1<<20)
	for range mebibytes {
		if _, err := w.Write(zeros); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

const most = 1<<31 - 1

// malformedFiles are files that lie, by what they lie about.
func malformedFiles(tb testing.TB) map[string][]byte {
	tb.Helper()
	plain := func(change func(c *crafted)) []byte {
		c := crafted{physical: pqInt64, rows: 100, values: 100, pages: [][]byte{page(pqDataPage, 100, pqPlain, 0, 0, int64s(100))}}
		change(&c)
		return c.file()
	}
	dict := func(indexes []byte, entries int64) []byte {
		return crafted{physical: pqInt64, rows: 100, values: 100, pages: [][]byte{
			page(pqDictPage, entries, pqPlain, 0, 0, int64s(4)), page(pqDataPage, 100, pqDict, 0, 0, indexes),
		}}.file()
	}
	onePage := func(physical, codec, rows int64, p []byte) []byte {
		return crafted{physical: physical, codec: codec, rows: rows, values: rows, pages: [][]byte{p}}.file()
	}
	deep := [][]byte{structure(bin(4, "root"), i32(5, 1))}
	for range 100_000 {
		deep = append(deep, structure(i32(3, 0), bin(4, "g"), i32(5, 1)))
	}
	deep = append(deep, structure(i32(1, pqInt64), i32(3, 0), bin(4, "x")))
	lyingIndex := structure(list(1, pqI, 0,
		structure(i64(1, 4), i32(2, most), i64(3, 0)), structure(i64(1, most), i32(2, most), i64(3, 50))))
	snappyHuge := append(binary.AppendUvarint(nil, 1<<32-1), 0, 0)
	return map[string][]byte{
		"footer of 2 GiB":                        plain(func(c *crafted) { c.footerBytes = most }),
		"2^31 row groups":                        plain(func(c *crafted) { c.groups = most }),
		"schema 100,000 groups deep":             plain(func(c *crafted) { c.schema = deep }),
		"group of 2^31 children":                 plain(func(c *crafted) { c.schema = [][]byte{structure(bin(4, "root"), i32(5, most))} }),
		"group of -1 children":                   plain(func(c *crafted) { c.schema = [][]byte{structure(bin(4, "root"), i32(5, -1))} }),
		"no schema":                              plain(func(c *crafted) { c.schema = [][]byte{} }),
		"physical type 99":                       plain(func(c *crafted) { c.physical = 99 }),
		"repetition 99":                          plain(func(c *crafted) { c.repetition = 99 }),
		"codec 99":                               plain(func(c *crafted) { c.codec = 99 }),
		"2^62 rows":                              plain(func(c *crafted) { c.rows, c.values = 1<<62, 1<<62 }),
		"-1 rows":                                plain(func(c *crafted) { c.rows, c.values = -1, -1 }),
		"chunk at -8":                            plain(func(c *crafted) { c.at = func(int64) int64 { return -8 } }),
		"chunk behind the file":                  plain(func(c *crafted) { c.at = func(int64) int64 { return 1 << 40 } }),
		"offset index that lies":                 plain(func(c *crafted) { c.index = lyingIndex }),
		"page of 2^31 values":                    onePage(pqInt64, 0, most, page(pqDataPage, most, pqPlain, 0, 0, int64s(100))),
		"page of -1 values":                      onePage(pqInt64, 0, 100, page(pqDataPage, -1, pqPlain, 0, 0, int64s(100))),
		"page of 2 GiB":                          onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqPlain, most, most, int64s(100))),
		"page of -1 bytes":                       onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqPlain, -1, -1, int64s(100))),
		"page of 2 GiB uncompressed, snappy":     onePage(pqInt64, pqSnappy, 100, page(pqDataPage, 100, pqPlain, most, 0, int64s(10))),
		"snappy block of 4 GiB":                  onePage(pqInt64, pqSnappy, 100, page(pqDataPage, 100, pqPlain, 800, 0, snappyHuge)),
		"encoding 99":                            onePage(pqInt64, 0, 100, page(pqDataPage, 100, 99, 0, 0, int64s(100))),
		"delta of text on numbers":               onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqDeltaArray, 0, 0, int64s(100))),
		"delta with blocks of 2^62":              onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqDelta, 0, 0, append(binary.AppendUvarint(nil, 1<<62), 4, 100, 0, 0, 0, 0, 0, 0))),
		"delta with 0 miniblocks":                onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqDelta, 0, 0, []byte{128, 1, 0, 100, 0, 0, 0, 0})),
		"delta that claims 2^62 values":          onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqDelta, 0, 0, append(append([]byte{128, 1, 4}, binary.AppendUvarint(nil, 1<<62)...), 0, 0, 0, 0, 0, 0))),
		"text longer than its page":              onePage(pqByteArray, 0, 1, page(pqDataPage, 1, pqPlain, 0, 0, []byte{255, 255, 255, 127, 'a'})),
		"text of -1 bytes":                       onePage(pqByteArray, 0, 1, page(pqDataPage, 1, pqPlain, 0, 0, []byte{255, 255, 255, 255, 'a'})),
		"dictionary of 2^31 values":              dict([]byte{2, 200, 1, 0}, most),
		"dictionary index 3 of 1":                dict([]byte{2, 200, 1, 3}, 1),
		"dictionary indexes of 255 bits":         dict([]byte{255, 200, 1, 3, 3, 3, 3}, 4),
		"dictionary indexes, none there":         dict([]byte{2}, 4),
		"dictionary indexes, no dictionary":      onePage(pqInt64, 0, 100, page(pqDataPage, 100, pqDict, 0, 0, []byte{2, 200, 1, 0})),
		"run of 2^60 indexes":                    dict(append([]byte{2}, append(binary.AppendUvarint(nil, 1<<61), 3)...), 4),
		"packed run of 2^60 indexes":             dict(append([]byte{2}, append(binary.AppendUvarint(nil, 1<<61|1), 3)...), 4),
		"levels of 4 GiB":                        crafted{physical: pqInt64, repetition: 1, rows: 100, values: 100, pages: [][]byte{page(pqDataPage, 100, pqPlain, 0, 0, append([]byte{255, 255, 255, 255}, int64s(9)...))}}.file(),
		"gzip bomb behind a page of 800 bytes":   onePage(pqInt64, pqGzip, 100, page(pqDataPage, 100, pqPlain, 800, 0, packedZeros(tb, pqGzip, 1<<10))),
		"zstd bomb behind a page of 800 bytes":   onePage(pqInt64, pqZstd, 100, page(pqDataPage, 100, pqPlain, 800, 0, packedZeros(tb, pqZstd, 1<<10))),
		"zstd page of 1 GiB that says so":        onePage(pqInt64, pqZstd, 1<<27, page(pqDataPage, 1<<27, pqPlain, 1<<30, 0, packedZeros(tb, pqZstd, 1<<10))),
		"zstd page of 1 GiB for 100 values":      onePage(pqInt64, pqZstd, 100, page(pqDataPage, 100, pqPlain, 1<<30, 0, packedZeros(tb, pqZstd, 1<<10))),
		"the same page of a GiB, 20 times there": plain(func(c *crafted) { c.codec, c.rows, c.values, c.pages = pqZstd, 20<<27, 20<<27, bombs(tb, 20) }),
	}
}

// bombs are pages of 1 GiB each.
func bombs(tb testing.TB, n int) (pages [][]byte) {
	tb.Helper()
	one := page(pqDataPage, 1<<27, pqPlain, 1<<30, 0, packedZeros(tb, pqZstd, 1<<10))
	for range n {
		pages = append(pages, one)
	}
	return pages
}
