// Package snapshot reads and writes what shards hold at one moment:
//
//	DIR/snap-00000012/             a snapshot, if it has a manifest
//	    begun                      first of all; it goes when there is a manifest
//	    rows-TTTT-SSSS.arrow       rows of table T as shard S wrote them, in the order of [table.Hash]: fid, time, count, weights
//	    state-TTTT-SSSS.arrow      the optimizers' state of the same rows, in the same record batches, where there is any
//	    removed-TTTT-SSSS.arrow    of an incremental snapshot, the fids whose rows are gone, in that order too
//	    dense-SSSS.arrow           dense tensors of shard S, one a row
//	    dense-state-SSSS.arrow     the optimizers' state of the same tensors
//	    manifest.json              everything else, written last; see [Info]
//
// A snapshot is kept in an [fsx.FS], of which it needs nothing but whole files: it is there as soon as its manifest is, and gone
// as soon as that is gone; what has none is removed by [Clean]. Weights and optimizer state are files of their own, so that
// who only evaluates or serves reads no state ([OpenOptions].WeightsOnly).
//
// An incremental snapshot holds the rows that have changed since its base, another snapshot of the folder, and is read together with it; dense
// tensors are whole. A [Chain] ends with a whole snapshot. [Compact] makes one whole, whose files have other names then; [Retention] keeps bases.
//
// The manifest says what the parameters are: their shape, which must fit ([param.Shape]), their rules, which may change
// ([param.Rules]), the model's graph and the recipe of its examples. [Convert] makes a snapshot of another shape.
//
// Files are Arrow IPC files that any Arrow tool reads. Each is durable before the manifest names it, and verified by its
// SHA-256 before it is used (invariant 4). They are read, not mapped, so that a bad sector is [ErrCorrupt] and not the end of
// the process, and a number in a file asks for no more memory than the bytes that are there.
package snapshot
