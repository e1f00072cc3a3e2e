// Package tfrecord reads and writes the framing of TensorFlow's TFRecord files. A file is a run of records without a
// header; all integers are little-endian:
//
//	┌───────────┬──────────────────────┬──────────────┬────────────────────┐
//	│ length u64│ masked crc32c of the │ data: length │ masked crc32c of   │
//	│           │ 8 length bytes, u32  │ bytes        │ the data bytes, u32│
//	└───────────┴──────────────────────┴──────────────┴────────────────────┘
//
// The checksum is CRC-32C (Castagnoli), masked so that a checksum of data that itself holds checksums stays a good one:
//
//	masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8        (tensorflow/core/lib/hash/crc32c.h, Mask)
//
// Both checksums are always verified; with the processor's instruction that costs about a tenth of decoding the record.
// Compressed TFRecord files are the same bytes inside a gzip stream.
package tfrecord
