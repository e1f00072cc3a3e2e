// Package entrydump reads and writes the checkpoints that bytedance/monolith makes of its embedding tables. A model's checkpoint
// has one folder of them, beside the dense variables:
//
//	model.ckpt-1200.index                      dense variables, a TensorFlow bundle (package tfbundle)
//	model.ckpt-1200.data-00000-of-00001
//	model.ckpt-1200.assets/
//	    MonolithHashTable_X-00000-of-00002     a table by itself: TFRecord, an EntryDump a record
//	    MonolithHashTable_X-00001-of-00002
//	    MonolithMultiHashTable-00000-of-00001        many tables: the same records in blocks of snappy
//	    MonolithMultiHashTable.meta-00000-of-00001   how many records belong to which table, one after the other
//	    hash_filter_0-00000-of-00007                 counters of an admission filter
//
// An EntryDump is a message of proto2 (monolith/native_training/runtime/hash_table/embedding_hash_table.proto), whose numbers are
// not packed:
//
//	id = 1 sfixed64
//	num = 2 repeated float                 the weights, segments one after the other
//	opt = 3 {dump = 1 repeated {…}}        what the optimizer of each segment keeps; see [Kind]
//	last_update_ts_sec = 4 int64
//	count = 1000 uint64                    written by this package alone: how often the row was updated
//	last_update_micros = 1001 uint32       … and what the seconds leave out; upstream's readers pass over both
//
// Upstream's writer is native_training/runtime/ops/hash_table_save_op.cc and multi_hash_table_save_restore_ops.cc. Files are read as
// streams: memory holds a record, or a block, whatever the size of a table. Checksums are verified, and damage is an error with
// file, place and reason.
package entrydump
