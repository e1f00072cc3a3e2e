// Package wal keeps the write-ahead log of one shard.
//
// The shard appends what it must not lose, as records of a kind and bytes that mean nothing here, and acknowledges when
// [Log.Wait] says that they are durable. Snapshots trim the log: a border ([Log.Rotate]) separates what lies before the
// cut of a snapshot from what follows it, and a shard comes back as the snapshot plus the records after its border.
//
//	l, err := wal.Open(opts)             reads headers, changes nothing
//	l.Bases()                            snapshots from which the log goes on, newest first
//	l.Replay(ctx, base, f)               every record behind that cut, in order
//	l.Begin()        or l.Reset(base)    go on behind the last record, or begin anew
//	lsn, err := l.Append(kind, bytes)    under the shard's lock: the order of records is the order of effects
//	l.Wait(ctx, lsn)                     outside of it: many waiters share one fsync
//	l.Rotate(id)                         at the cut of snapshot id, under the shard's lock
//	l.Flush(ctx)                         before the manifest of snapshot id is written: its border is durable
//	l.Trim(id)                           after it: what lies before the snapshot before id goes
//
// # Files
//
// A log is a folder of segments wal-NNNNNNNNNNNNNNNN.log, numbered without gaps. A segment ends at a border, when it has
// grown over [Options].SegmentBytes, and when the process ends: an old segment is never appended to. The next segment is
// made only when everything in the one before is durable. Numbers are little endian.
//
//	segment = header, record...
//
//	header                                            record
//	+--------------------------+                      +--------------------------+
//	| magic "MONOWAL\n"     8  |                      | checksum              4  |
//	| version               4  |                      | length of payload     4  |
//	| flags                 4  |                      | lsn                   8  |
//	| number of the segment 8  |                      | durable               8  |
//	| base: snapshot id     8  |                      | kind                  1  |
//	| lsn of first record   8  |                      | payload          length  |
//	| salt                  8  |                      +--------------------------+
//	| length of identity    4  |
//	| identity         length  |
//	| checksum              4  |
//	+--------------------------+
//
// Checksums are CRC-32C, of a header over everything before it, of a record over the salt and everything after the
// checksum. The salt is random for each segment and the lsn counts by one, so that old bytes of a block that the file
// system used before are never taken for a record. The field durable is the lsn up to which the log was durable when the
// record was written. Flags: 1, the segment begins at the border of its base (which takes an lsn of its own, the one
// before the first record's); 2, the log begins here and earlier segments count for nothing ([Log.Reset]).
//
// # Torn and corrupt
//
// A process or machine that dies while it writes leaves the end of the last segment incomplete. Nothing of that was
// acknowledged, and [Log.Replay] leaves it out and reports it ([Tail]). Anything else that is not as it was written is
// [ErrCorrupt]: every fault in a segment that is not the last, a missing segment, and in the last segment a bad record x
// with a good one after it, for which it scans what is left of the file, unless both were in flight when the machine died:
// no good record after x says that x was durable, and x has a hole of zeros the size of a disk's sector where blocks
// reached the disk out of order.
//
// Two cases cannot be distinguished from a torn tail and are taken for one: damage to the very last record with nothing good
// after it, and damage to a record of the last group if one of its sectors is zero. The first also holds for the header of
// a last segment that has no records: the border is lost, but nothing that was acknowledged follows it.
//
// Begin writes the last segment again instead of continuing with it: that cuts off the torn end, and pages that an earlier
// fsync failed to write, which a second one would call durable, go to disk after all.
package wal
