// Package snapshot reads and writes what shards hold at one moment:
//
//	DIR/snap-00000012/             a folder that has this name is complete
//	    rows-TTTT-SSSS.arrow       rows of table T as shard S wrote them, in the order of [table.Hash]
//	    dense-SSSS.arrow           dense tensors of shard S, one a row
//	    manifest.json              everything else, written last; see [Info]
//	DIR/snap-00000013.tmp/         left over by a writer or remover that was killed
//
// Files are Arrow IPC files that any Arrow tool reads. Each is synced before the folder gets its name, and verified by its
// SHA-256 before it is used (invariant 4). They are read, not mapped, so that a bad sector is [ErrCorrupt] and not the end of
// the process, and a number in a file asks for no more memory than the bytes that are there.
package snapshot
