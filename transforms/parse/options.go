package parse

import (
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/loss"
)

// Format describes how records are written.
type Format string

// The formats.
const (
	// TFExample is tf.Example in protobuf's wire format.
	TFExample Format = "tf_example"
	// LibFM is `label index:value index:value ...`, blanks between.
	LibFM Format = "libfm"
	// CSV is RFC 4180: fields may be in double quotes, within which a double quote is written twice.
	CSV Format = "csv"
	// TSV is fields between delimiters, taken as they are.
	TSV Format = "tsv"
	// JSONL is one JSON object a record. Values are numbers, strings, booleans (1 and 0), null (missing) and arrays of
	// one of these.
	JSONL Format = "jsonl"
)

// Kind describes what a feature becomes.
type Kind string

// The kinds. The empty string is Sparse.
const (
	Sparse Kind = "sparse"
	Dense  Kind = "dense"
)

// Keep says which of a row's values remain where it has more than the maximum.
type Keep string

// The ends of a row. The empty string is KeepFirst.
const (
	KeepFirst Keep = "first"
	KeepLast  Keep = "last"
)

// Type describes how a feature's values are read.
type Type string

// The types. The empty string is Auto.
const (
	// Auto takes what is there, and means the same in every format, so that a csv file and a stream of tf.Example or JSON
	// give equal rows. A sparse feature takes integers as integers, also where they are written as text (667, -5, and true
	// and false for 1 and 0, as JSON writes them). A whole number that is written with a point is that integer (667.0), in
	// text, JSON, float_list, FLOAT and DOUBLE; other floats make the row bad. nan, NaN and NAN are missing. All other text
	// is hashed (007, +1, 1.5, abc). A dense one takes integers and floats, and in csv, tsv and side tables, where everything is text, the numbers
	// that it says.
	Auto Type = "auto"
	// Int takes integers, and floats as Auto does. Text is read as a decimal number in csv, tsv and side tables, and wherever Regexp or Split
	// say that it is text; elsewhere text is the wrong type.
	Int Type = "int"
	// String takes text and hashes it.
	String Type = "string"
	// Float takes numbers; text as with Int. In a sparse feature without Buckets x becomes the signature
	// floor(log2(|x|+1)), the bucket that upstream's tf_example_to_example puts floats into
	// (native_training/data/parsers.py).
	Float Type = "float"
)

// Hash describes how integers become signatures. Text is always hashed ([fid.HashBytes]).
type Hash string

// The ways. The empty string is HashNone.
const (
	// HashNone: the integer is the signature; a negative one or one above [fid.MaxSignature] makes the row bad.
	HashNone Hash = "none"
	// HashInt: [fid.HashInt] of the integer is the signature. An integer above the largest int64 has the hash of its 64 bits, as in a column of
	// Parquet's uint64.
	HashInt Hash = "hash"
)

// Encoding describes how the text of a side table is written.
type Encoding string

// The encodings. The empty string is UTF8.
const (
	// UTF8 is checked: other bytes are an error that names the line.
	UTF8 Encoding = "utf8"
	// Latin1 is ISO 8859-1; it becomes UTF-8.
	Latin1 Encoding = "latin1"
)

// Options describes what to make of records. It is not changed by anything in this package.
type Options struct {
	// Format is needed by [New] and left empty for [NewColumns].
	Format Format
	// Columns names the fields of csv and tsv records from left to right; the empty string skips one. Without it, the
	// names come from the header line, which the source puts into the block's schema metadata under [pipeline.MetadataHeader].
	Columns []string
	// Delimiter separates the fields of csv (one byte, default a comma) and tsv (default a tab).
	Delimiter string
	// Fields describes which feature column each entry of a libfm record belongs to: the k-th entry to the k-th field, so
	// that a record has exactly as many entries. Without it all entries belong to one column named "features".
	Fields []string
	// Features lists the outputs. With libfm it may be empty: then each of Fields is a sparse feature with its place
	// (from 1) as its slot, or without Fields "features" is one with slot 1.
	Features []Feature
	// Labels are what the heads of a model learn from; none: there are no labels, except in libfm, which always has one.
	Labels []Label
	// Weight is the column of example weights; without a name there are none.
	Weight Weight
	// Keys are columns passed on as text, for metrics that group and slice by them.
	Keys []Key
	// LineID names columns whose values (the first of each) identify what an example is about. One is passed on as
	// it is, several are joined by tabs; numbers are written in decimal.
	LineID []string
	// Joins adds columns from side tables.
	Joins []Join
	// Holdout divides the records between training and evaluation. The zero value: all are kept.
	Holdout Holdout
	// FS is where the side tables are; nil: this machine.
	FS fsx.FS
}

// Feature is one output. A row is bad in which a dense feature is beyond ±1e9, after all that its options make of it.
type Feature struct {
	// Name is the output column; it may not begin and end with two underscores.
	Name string
	// Column is the source column; default Name. Features may share one.
	Column string
	// Slot is the slot of a sparse feature's fids, 1 to 32767. Features may share one, and then share embeddings.
	Slot int
	Kind Kind
	Type Type
	Hash Hash
	// Literal hashes text that looks like a float (667.0, nan) as it stands, as all releases did before text meant the same as numbers: for
	// models that were trained then.
	Literal bool
	// Split cuts text into several values: "|".
	Split string
	// Regexp takes a part of the text (Go syntax, regexp/syntax): the first group, or without groups the whole match. No
	// match is missing. It comes before Split.
	Regexp string
	// Ignore lists values that stand for nothing, such as the padding of lists: they are left out before anything else is
	// made of the values, but after Regexp and Split. A word that is a number also ignores the number, however it is
	// written; with String only the same text is ignored. In a dense feature of libfm it is the entry's value.
	Ignore []string
	// Max keeps that many values of a sparse feature, from the end that Keep names; 0 keeps all.
	Max  int
	Keep Keep
	// Default stands for a missing value and is read as text of the feature's type. Empty: no fids, or zeros.
	Default string
	// Dim is the width of a dense feature, default 1. A row with another number of values is bad.
	Dim int
	// Clip, Log, Mean and Std change the numbers of a dense feature, in this order:
	//
	//	x = min(max(x, Clip[0]), Clip[1])
	//	x = sign(x)·ln(1 + |x|)
	//	x = (x - Mean) / Std, cut at ±[model.MaxDeviations]
	//
	// Without (no Clip, false, Std 0) a step is left out. A Default goes the same way; without one a missing value is 0
	// after all of it.
	Clip      []float64
	Log       bool
	Mean, Std float64
	// KeepMissing makes a missing value of a dense feature NaN where there is no Default, for models that know what to do
	// with it ([model.Feature].Decay).
	KeepMissing bool
	// Indicator names a column beside a dense feature, which is 1 where its value is missing and 0 elsewhere.
	Indicator string
	// Buckets makes a sparse feature of numbers: the signature is the number of these boundaries, which ascend, that are
	// not above the value. The type is Float.
	Buckets []float64
	// MissingBucket gives missing values a bucket of their own after the last, where there is no Default.
	MissingBucket bool
	// Values names an output column for the values of libfm's entries beside the fids. Without it a value other than 1
	// makes the row bad. A dense feature on one of Fields takes the values themselves.
	Values string
}

// Label describes where the labels of one head come from. A row without a label is bad, unless the label is Optional, and so is
// one whose label is not in the range Accepts, or beyond ±1e9, where no loss can learn any more.
type Label struct {
	// Name is the head's: the labels are in [pipeline.LabelColumn] of it. It may be empty.
	Name string
	// Column is the source column. In libfm the record's own label, "label", is the default.
	Column string
	// Width is how many numbers a row has, default 1. More are a list in the record, or text that Split cuts.
	Width int
	// Split cuts text into Width numbers: "|".
	Split string
	// Positive makes 1 or 0: of a number by an operator (>=, >, <=, <, ==, !=) and a number, compared as float32, of text by == or
	// != and a text, blanks around which do not count. Empty: the number is the label, true and false being 1 and 0; in libfm, for a label that accepts 0 to 1, -1 becomes 0.
	Positive string
	// Accepts is the range of labels that the head's loss accepts; the zero value means 0 to 1.
	Accepts loss.Range
	// Optional makes rows without this label good ones: [pipeline.MaskColumn] of Name is then false there, and the label 0.
	Optional bool
	// Mask is a column with a number, true or false, or what MaskPositive compares: where it is 0 or missing, a row has no label, whatever Column holds. It
	// makes the label Optional. Empty: none.
	Mask string
	// MaskPositive is what Mask's number or text must be for a row to have a label, as Positive is written. Empty: not 0.
	MaskPositive string
}

// Key is a column that is passed on as text under [pipeline.KeyColumn] of its name: the first value, numbers in decimal, and
// nothing where it is missing.
type Key struct {
	Name string
	// Column is the source column; default Name.
	Column string
}

// Weight describes where weights come from. A missing weight is 1; a negative or infinite one makes the row bad.
type Weight struct {
	Column string
}

// Join adds the columns of a side table to each record: those of the line whose KeyColumn holds what Key holds in the
// record. The file is read when the stage is opened, once a worker, and only what features need is kept.
type Join struct {
	// File is a text file with one line for each key; a key that occurs twice is an error.
	File string
	// Delimiter separates the fields; default a tab. With a single comma the lines are csv.
	Delimiter string
	// Header says that the first line holds no data.
	Header bool
	// Columns names the fields from left to right; the empty string skips one.
	Columns []string
	// Key is the record's column, KeyColumn that of the side table; KeyColumn's default is Key.
	Key, KeyColumn string
	Encoding       Encoding
	// Prefix goes before the names of Columns. The key column is not offered, the record has it.
	Prefix string
	// MaxBytes bounds the size of the file; default 256 MiB.
	MaxBytes int64
}
