// Package textsource reads lines of plain or gzip files as blocks of undecoded records: one split a file. What the lines
// mean (libfm, CSV, TSV, JSON) is for a parse stage to know.
//
//	clicks.tsv ─> [header line] line line line ... ─> block of up to 4096 lines
//	                    │                               __payload__ binary, __position__ int64
//	                    └──────────────────────────────> schema metadata "header"
//
// A line ends at a line feed, which does not belong to it, nor does a carriage return before that. Empty lines are
// dropped. A byte order mark (EF BB BF) at the beginning of a file is dropped too.
package textsource
