package wal

// EncodeSegment writes a segment, for the tests of the reader.
func EncodeSegment(identity string, seq, base, first, salt, durable uint64, border bool, kind byte, payloads ...[]byte) []byte {
	h := header{seq: seq, base: base, first: first, salt: salt, identity: identity}
	if border {
		h.flags = flagBorder
	}
	var recs []byte
	for i, p := range payloads {
		recs = appendRecord(recs, first+uint64(i), kind, len(p), [][]byte{p})
	}
	seal(recs, salt, durable)
	return append(h.encode(), recs...)
}
