// Package parquetsource reads columns of Parquet files as batches: one split a row group, named `path#0003`.
//
//	ratings.parquet ─> row group 0 ─> user INT32 ─────────> int64 ┐
//	                                  genres LIST<STRING> ─> list<binary> ├─> batch of up to 4096 rows
//	                                  ...                         ┘      + __position__ (row in the row group)
//
// The caller declares the columns and the types it wants; see [New] for what converts to what. Nulls stay nulls. Files are
// not trusted: whatever their bytes say, reading them ends and takes bounded memory.
package parquetsource
