// Package wal keeps the write-ahead log of the shards of one process.
//
// A shard appends what it must not lose, as records of a kind and bytes that mean nothing here, and acknowledges when
// [ShardLog.Wait] says that they are durable. Records of all shards go to one sequence of files, through one goroutine: it writes
// what has gathered meanwhile in one piece, syncs once, and wakes all that wait for it. Snapshots trim the log: a border
// ([ShardLog.Rotate]) separates what lies before the cut of a snapshot from what follows it, and a shard comes back as the
// snapshot plus its records after its border, whatever the others do.
//
//	l, err := wal.Open(opts)             reads the files, changes nothing
//	s := l.Shard(3)                      the log of one shard in it; all shards of the process say so before one of them begins
//	s.Bases()                            snapshots from which it continues, newest first
//	s.Replay(ctx, base, f)               every record of the shard behind that cut, in order
//	s.Begin()        or s.Reset(base)    continue behind the last record, or start over
//	lsn, err := s.Append(kind, bytes)    under the shard's lock: the order of records is the order of effects
//	s.Wait(ctx, lsn)                     outside of it: all that wait share one sync
//	s.Rotate(id)                         at the cut of snapshot id, under the shard's lock
//	s.Flush(ctx)                         before the manifest of snapshot id is written: its border is durable
//	s.Trim(id)                           after it: what lies before the snapshot before id is not needed by this shard any more
//	s.Follow(place)                      read what is durable while the log grows, from a border or a record on
//	l.Close()
//
// # Files
//
// A log is a folder of segments wal-NNNNNNNNNNNNNNNN.log, numbered without gaps. A segment ends before it would grow over
// [Options].SegmentBytes, and when the process ends: an old segment is never appended to. The next segment is made only when
// everything in the one before is durable, and the oldest are removed when no shard of the process needs them. Numbers are
// little endian.
//
//	segment = header, record..., zeros or what the file had before
//
//	header                                            record
//	+--------------------------+                      +--------------------------+
//	| magic "MONOWAL\n"     8  |                      | checksum              4  |
//	| version               4  |                      | length of payload     4  |
//	| file was used before  4  |                      | lsn                   8  |
//	| number of the segment 8  |                      | durable               8  |
//	| 0                     8  |                      | shard                 4  |
//	| lsn of first record   8  |                      | type                  1  |
//	| salt                  8  |                      | kind                  1  |
//	| length of identity    4  |                      | payload          length  |
//	| identity         length  |                      +--------------------------+
//	| checksum              4  |
//	+--------------------------+
//
// Checksums are CRC-32C, of a header over everything before it, of a record over the salt and everything after the
// checksum. The salt is random for each segment and the lsn counts by one over the records of all shards, so that what
// an earlier segment has left in the file, or a block that the file system used before, is never taken for a record. The field durable is the lsn up to which the log was
// durable when the record was written. Types: 0, a record of the shard; 1, a border; 2, the shard's log begins here and earlier
// records of that shard count for nothing ([ShardLog.Reset]). The payload of 1 and 2 is the number of the snapshot.
//
// Where syncs cost something, segments are filled with zeros beside the writing of the one before, so that a sync moves the bytes
// of its records and nothing of the file system's own, and passes the system's memory where that can be ([fsx.Disk].Update). The first
// of a process are small and not filled, and so are those that the disk had no time or room for. What snapshots have made
// superfluous is not removed but used for later segments, as many as the log has at that time: then nothing is filled, and the file
// system has neither blocks to find nor to give back. The field says 1 then, and 0 otherwise. Where a record finds the disk full, these files go first.
//
// # Torn and corrupt
//
// A process or machine that dies while it writes leaves the end of the last segment incomplete. Nothing of that was
// acknowledged, and [Open] leaves it out and reports it ([Tail]). Anything else that is not as it was written is
// [ErrCorrupt]: every fault in a segment that is not the last, a missing segment, and in the last segment a bad record x
// with a good one after it, unless both were in flight when the machine died: no good record after x says that x was durable,
// and x has a hole of zeros the size of a disk's sector where blocks reached the disk out of order. Damage takes from each shard
// what it has before; a shard whose border lies behind it has lost nothing.
//
// In a file that was used before there are no holes of zeros, and nothing behind the end says that it is the end. There, a segment that was ended is
// whole if the next one begins with the record behind its last, and in the last segment a bad record is torn unless a good one says that it was durable.
//
// These cases cannot be distinguished from a torn tail and are taken for one: damage to the very last record with nothing good
// after it, and damage to a record of the last group if one of its sectors is zero or its file was used before.
//
// The last segment is written again before the log continues, in place of appending to it: that cuts off the torn end, and pages
// that an earlier sync failed to write, which a second one would call durable, go to disk after all.
package wal
