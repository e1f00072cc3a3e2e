// Package pqfile decodes Parquet files: footer, schema, pages and encodings, as the format's specification describes them
// (apache/parquet-format: README.md, LogicalTypes.md, Encodings.md, parquet.thrift). It exists because input must neither
// kill nor stall the process: every length in a file is checked against what the file has and against [Limits] before
// memory is allocated for it, so a file can at worst be refused. General libraries trust their input more; the bytes that
// make them allocate without bound cannot be filtered out beforehand without decoding the file, and running out of memory
// cannot be recovered from.
//
// It reads what recommendation data needs: scalars and one level of lists, of booleans, integers, floating point numbers
// and byte arrays, in all encodings and codecs but LZO. It does not read encrypted files, INT96 and nested lists.
package pqfile
