// Package tfrecordsource reads TFRecord files, plain or gzip, as blocks of undecoded records: one split a file.
//
//	part-*.tfrecord ─> [len|crc|data|crc]... ─> block of up to 4096 records
//	                                              __payload__ binary, __position__ int64
//
// Both checksums of every record are verified. See internal/tfrecord for the bytes.
package tfrecordsource
