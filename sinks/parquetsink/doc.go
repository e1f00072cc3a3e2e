// Package parquetsink writes batches to Parquet files in a folder, each row exactly once ([filesink]).
//
// Columns keep their order and names; reserved ones are written as label, weight, time (a timestamp), position and line_id, and a
// column split names the split. The metadata of a file is key-value metadata of its footer.
package parquetsink
