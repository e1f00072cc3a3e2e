package wal

// Entry is a record of a segment, for the tests of the reader.
type Entry struct {
	Shard      uint32
	Type, Kind byte
	Payload    []byte
}

// RecordHead is what a record has beside its payload.
const RecordHead = recordHead

// BorderOf and ResetOf are the records of a cut.
func BorderOf(shard uint32, base uint64) Entry {
	return Entry{shard, typeBorder, 0, le.AppendUint64(nil, base)}
}

func ResetOf(shard uint32, base uint64) Entry {
	return Entry{shard, typeReset, 0, le.AppendUint64(nil, base)}
}

// EncodeSegment writes a segment, for the tests of the reader.
func EncodeSegment(identity string, seq, first, salt, durable uint64, records ...Entry) []byte {
	h := header{seq: seq, first: first, salt: salt, identity: identity}
	var recs []byte
	for i, r := range records {
		recs = appendRecord(recs, first+uint64(i), r.Shard, r.Type, r.Kind, len(r.Payload), [][]byte{r.Payload})
	}
	seal(recs, salt, durable)
	return append(h.encode(), recs...)
}

// Reuse makes a segment say that its file was another one's.
func Reuse(segment []byte) []byte {
	h, err := parseHeader(segment)
	if err != nil {
		panic(err)
	}
	h.reused = true
	return append(h.encode(), segment[h.len():]...)
}

// JoinSums is the checksum of n bytes of checksum b behind others of checksum a.
func JoinSums(a, b uint32, n int) uint32 { return joinSums(a, b, n) }

// SmallRecord is the size below which records are copied together.
const SmallRecord = smallRecord

// Fault is the error of a file that cannot be written.
func (l *Log) Fault(err error) error { return l.fail("writing", "wal-0000000000000001.log", err) }
