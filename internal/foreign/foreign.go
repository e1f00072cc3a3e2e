// Package foreign knows files that hold no lines of UTF-8 text by how they begin.
package foreign

import "bytes"

// HeadBytes is how much of a file's beginning is looked at.
const HeadBytes = 262

// Source says what a file that begins with head is, and what converts it, where a source is to read lines of UTF-8 in it that may be in gzip: "text in UTF-16, and UTF-8 is read;
// convert it: iconv -f UTF-16 -t UTF-8". It is "" for what may hold such lines.
func Source(head []byte) string {
	k := of(head)
	switch {
	case k == nil || k.gzip:
		return ""
	case k.packed:
		return k.what + ", and gzip is read, or what is not compressed; convert it: " + k.do + " | gzip"
	case k.source != "":
		return k.what + ", " + k.source
	}
	return k.what + k.why + "; convert it: " + k.do
}

// Table is [Source] for a table that is read as it is, without gzip.
func Table(head []byte) string {
	k := of(head)
	switch {
	case k == nil:
		return ""
	case k.packed || k.gzip:
		return k.what + ", and what is not compressed is read; convert it: " + k.do
	}
	return k.what + k.why + "; convert it: " + k.do
}

// Record says what a record is that begins with head, and what to do about it; "" for one that may be text or Protobuf.
func Record(head []byte) string {
	k := of(head)
	switch {
	case k == nil:
		return ""
	case k.packed || k.gzip:
		return "the record is " + k.what + ": write it plain; for a topic, set compression.type at the producer instead"
	}
	return "the record is " + k.what + ", which no format reads: convert it to JSON"
}

// kind is a kind of file without lines of UTF-8.
type kind struct {
	mark, what string
	// do is a command that makes text of it.
	do string
	// why stands behind what.
	why string
	// source is what is said in place of why and do where a source reads lines.
	source string
	// packed files hold one of any kind, and so do those in gzip.
	packed, gzip bool
}

const (
	needUTF8 = ", and UTF-8 is read"
	needText = ", and text is read"
)

// kinds are the kinds that are known by a mark at the beginning, which no text has. Of two that begin alike the longer comes first.
func kinds() []kind {
	return []kind{
		{mark: "\xff\xfe\x00\x00", what: "text in UTF-32", why: needUTF8, do: "iconv -f UTF-32 -t UTF-8"},
		{mark: "\x00\x00\xfe\xff", what: "text in UTF-32", why: needUTF8, do: "iconv -f UTF-32 -t UTF-8"},
		{mark: "\xff\xfe", what: "text in UTF-16", why: needUTF8, do: "iconv -f UTF-16 -t UTF-8"},
		{mark: "\xfe\xff", what: "text in UTF-16", why: needUTF8, do: "iconv -f UTF-16 -t UTF-8"},
		{mark: "\x1f\x8b", what: "compressed by gzip", do: "gzip -dc", gzip: true},
		{mark: "\x28\xb5\x2f\xfd", what: "compressed by zstd", do: "zstd -dc", packed: true},
		{mark: "\xfd7zXZ\x00", what: "compressed by xz", do: "xz -dc", packed: true},
		{mark: "\x04\x22\x4d\x18", what: "compressed by lz4", do: "lz4 -dc", packed: true},
		{mark: "\xff\x06\x00\x00sNaPpY", what: "compressed by snappy, in its format of frames", do: "snzip -dc", packed: true},
		{mark: "PK\x03\x04", what: "a zip archive", do: "unzip -p", packed: true},
		{mark: "SQLite format 3\x00", what: "a database of SQLite", why: needText, do: "sqlite3 -csv -header"},
		{mark: "ARROW1\x00\x00", what: "in Arrow's format", why: needText, do: "pyarrow.csv.write_csv", source: "and text is read; convert it: pyarrow.parquet.write_table, for source.parquet"},
		{mark: "PAR1\x15", what: "in Parquet", why: needText, do: "pyarrow.csv.write_csv", source: "which source.parquet reads"},
		{mark: "Obj\x01", what: "in Avro", why: needText, do: "avro-tools tojson"},
	}
}

// of returns the kind of a file that begins with head, or nil.
func of(head []byte) *kind {
	for _, k := range kinds() {
		if bytes.HasPrefix(head, []byte(k.mark)) {
			return &k
		}
	}
	const bzip2, block, tar, tarAt = "BZh", "1AY&SY", "ustar", 257
	switch {
	case bytes.HasPrefix(head, []byte(bzip2)) && len(head) > len(bzip2) && bytes.HasPrefix(head[len(bzip2)+1:], []byte(block)):
		return &kind{what: "compressed by bzip2", do: "bzip2 -dc", packed: true}
	case len(head) > tarAt && bytes.HasPrefix(head[tarAt:], []byte(tar)):
		return &kind{what: "a tar archive", why: ", and the files in it are read", do: "tar -x"}
	}
	return nil
}
