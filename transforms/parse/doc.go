// Package parse turns records into features: [New] takes blocks of tf.Example, libfm, csv, tsv or JSON lines apart,
// [NewColumns] takes batches of plain columns, as Parquet files have them. Both give batches with the declared features
// and the reserved columns:
//
//	sparse feature    list<int64>, items not null          fids of its slot, any number a row
//	dense feature     float32, or fixed_size_list<float32>[Dim]
//	indicator         float32, beside a dense feature      1 where it is missing
//	values column     list<float32>, items not null        libfm only, beside a sparse feature
//	__label__                float32, or fixed_size_list<float32>[Width]; of a named head __label_NAME__
//	__mask_NAME__            bool, of optional labels      false where there is none
//	__weight__               float32
//	__key_NAME__             binary
//	__line_id__       binary
//	__time__          int64, when the input has it
//	__position__      int64
//
// A value goes this way: source column (or a column of a joined side table) -> Regexp -> Split -> number or hash -> Max,
// a number of a dense feature on through Clip -> Log -> Mean and Std.
// Empty text counts as missing, everywhere; a missing value is the feature's Default.
//
// A record that cannot be used goes to [pipeline.Env.BadRow] with one of the reasons of reason.go, and the others stay:
// the position of a row is still the place after its record, so nothing downstream notices.
//
// Parsing keeps its buffers: a block costs a few allocations for each column and none for each row, except where a
// feature of a row's own column has a Regexp (one) and where JSON strings have escapes (two).
package parse
