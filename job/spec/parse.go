package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Parse describes how records become features and labels.
type Parse struct {
	// Format is what a record is: tf_example, libfm, csv, tsv, jsonl, or columns for Parquet. Default: columns for a
	// Parquet source, tf_example for TFRecord files and the synthetic stream, and none for the others.
	Format string `yaml:"format" enum:"tf_example|libfm|csv|tsv|jsonl|columns"`
	// Columns names the columns of csv and tsv files without a header, in order; an empty name skips one.
	Columns []string `yaml:"columns" blank:"true"`
	// Header is true when the first line of each csv or tsv file names the columns.
	Header bool `yaml:"header" default:"false"`
	// Fields names the fields of libfm rows: the k-th entry of a row belongs to the k-th field. Without it all entries
	// of a row belong to one feature named features, and rows may have any number. The value after an entry's colon weighs
	// it: the entry's weight and vector are multiplied by it.
	Fields []string `yaml:"fields"`
	// Features are the inputs of the model. libfm may leave them out: each field is then a sparse feature.
	Features []Feature `yaml:"features"`
	// WholeIDs makes the text 667.0 the id 667, as it is in JSON and columns of floats, and nan a missing value. false hashes such
	// text as it stands: for models that were trained before there was this key.
	WholeIDs bool `yaml:"whole_ids" default:"true"`
	// Label is what is predicted, in a job without heads.
	Label Label `yaml:"label"`
	// Weight is how much an example counts; absent: 1. A row of weight k adds to the gradient what k copies of the row
	// would: a batch's loss is the sum of weight times cross entropy, divided by the number of its rows, not by the sum of
	// their weights. Weights far above 1 are therefore larger steps; they need not average to 1, but rates are tuned for it.
	Weight *Weight `yaml:"weight"`
	// Joins add columns from small files that are read into memory at the start.
	Joins []Join `yaml:"joins"`
}

// Feature is one input of the model.
type Feature struct {
	// Name is the feature's name. Names that begin and end with two underscores are reserved.
	Name string `yaml:"name" required:"true"`
	// Column is where its value is in the record. Default: the name.
	Column string `yaml:"column"`
	// Kind is sparse for ids with embeddings, dense for numbers.
	Kind string `yaml:"kind" default:"sparse" enum:"sparse|dense"`
	// Slot is the feature field of a sparse feature; features of one slot share embeddings. Default: the place in the
	// list, from 1, when no feature names a slot.
	Slot *int `yaml:"slot" min:"1" max:"32767"`
	// Type is how the value is read. auto means the same in every format, so that history in one and a stream in another
	// train the same rows: of a sparse feature, integers are ids however they are written (667 or 667.0 in csv, in JSON with
	// or without quotes, in float_list or DOUBLE; true and false are 1 and 0). nan, NaN and NAN are missing. All other text
	// (007, 1.5, abc) is hashed; other floats are bad rows. int takes integers only, string hashes all text. float takes numbers; the id of x in a sparse feature is its bucket, without buckets
	// floor(log2(|x| + 1)).
	Type string `yaml:"type" default:"auto" enum:"auto|int|string|float"`
	// Hash is none to take an integer as the id itself (below 0 or above 281474976710655 is a bad row), or hash, which takes
	// any integer of 64 bits, with a sign or without. Text that is no integer is always hashed.
	Hash string `yaml:"hash" default:"none" enum:"none|hash"`
	// Split cuts a text value into several; empty: one value.
	Split string `yaml:"split" default:""`
	// Regexp takes a part of the text: the first group of the first match, or the match itself where it has no groups.
	// Empty: the whole text. It comes before Split.
	Regexp string `yaml:"regexp" default:""`
	// Ignore lists values that stand for nothing: `ignore: [0, -1, ""]`. Set it where your lists are padded, or where a number such as -1
	// means missing. Ignored values are left out before max, default and missing apply. 0 ignores the number 0 and the text 0. With
	// type: string only the same text is ignored. Empty texts and nulls are always left out.
	Ignore []string `yaml:"ignore" blank:"true"`
	// Max keeps that many values of a row; 0: all. Results and metrics count the rows that were cut.
	Max int `yaml:"max" default:"0" min:"0"`
	// Keep says which values max keeps: the first or the last ones of the list. Histories have the oldest first, so last keeps the
	// newest. Set first where your lists begin with the newest. Default: last with attends, first without.
	Keep string `yaml:"keep" enum:"first|last"`
	// Default stands for a missing or empty value. Without it a sparse feature is empty and a dense one 0.
	Default *string `yaml:"default"`
	// Dim is the width of a dense feature.
	Dim int `yaml:"dim" default:"1" min:"1"`
	// Clip bounds a dense feature, [lo, hi]: x = min(max(x, lo), hi). It comes before log.
	Clip []float64 `yaml:"clip"`
	// Log takes the logarithm of a dense feature: x = sign(x)·ln(1 + |x|), for counts and prices. It comes before
	// standardise.
	Log bool `yaml:"log" default:"false"`
	// Standardise takes a dense feature to mean 0 and standard deviation 1: x = (x - mean) / std, cut at ±10. Without it
	// the model sees the number as it is, which must then be of the size of 1. Beyond ±1e9 it is a bad row.
	Standardise *Standardise `yaml:"standardise"`
	// Buckets makes a sparse feature of a number: its id is how many of these boundaries, which ascend, are not above it.
	Buckets []float64 `yaml:"buckets"`
	// Missing chooses what a missing number becomes. default: the default, or without one 0 after clip, log and standardise (so
	// the mean), and no id in buckets. indicator: beside a dense feature there is another one, with _missing after its
	// name, that is 1 where the value is missing; in buckets missing values have an id of their own.
	Missing string `yaml:"missing" default:"default" enum:"default|indicator"`
	// Combiner pools the embeddings of a row. sqrtn divides the sum of n of them by √n; max takes the largest number of each
	// column; first puts as many as max says side by side (those that keep names), in the order of the record, each as that of a feature of its own, and zeros where a row has fewer (bytedance/monolith: FirstN). The entries of a
	// feature that is pooled by max or first cannot interact (fm, deepfm).
	Combiner string `yaml:"combiner" default:"sum" enum:"sum|mean|sqrtn|max|first"`
	// Attends makes a sequence of a sparse feature: each of its values is weighed by what it has to do with the sparse feature
	// named here, as those of a history by the candidate item. For shared_bottom, mmoe, ple, esmm, snr, dbmtl, pepnet, rankmixer, din, dien and hstu.
	Attends string `yaml:"attends" default:""`
	// AttentionHeads makes that attention one of so many heads, each of which compares projections of the values with one of what they attend to, and gives shares
	// that add up to 1 (Vaswani et al., 2017). 0: a small network weighs each value by itself (Zhou et al., 2018). Not for dien and hstu.
	AttentionHeads int `yaml:"attention_heads" default:"0" min:"0" max:"64"`
	// Table is the embedding table of a sparse feature; features of one table and slot share embeddings. A table's
	// own settings are under tables. Empty: the one table of all features that name none.
	Table string `yaml:"table" default:""`
}

// The values of [Feature].Keep.
const (
	keepFirst = "first"
	keepLast  = "last"
)

// Standardise is exactly one source of the mean and standard deviation. Short form: `standardise: running`.
type Standardise struct {
	// Given takes them from here.
	Given *GivenMoments `yaml:"given"`
	// Running learns them with the model: each batch is scaled by what the batches before it held, older ones counting
	// less, in training and evaluation alike. They are parameters, and snapshots have them.
	Running *RunningMoments `yaml:"running"`
}

// GivenMoments are a mean and a standard deviation.
type GivenMoments struct {
	// Mean is subtracted.
	Mean float64 `yaml:"mean" default:"0"`
	// Std is what is divided by then.
	Std float64 `yaml:"std" required:"true" above:"0"`
}

// RunningMoments are a mean and a standard deviation that follow the data.
type RunningMoments struct {
	// Decay is what remains of their weight from one batch to the next: 0.999 makes about the last thousand batches count.
	Decay float64 `yaml:"decay" default:"0.999" above:"0" max:"0.999999"`
}

// Label is what is predicted. Short form: the name alone.
type Label struct {
	// Name is what the label is called. A snapshot remembers it. In libfm it may be any name, or none: each row begins with its label,
	// which all heads share. The name of one of parse.fields takes the value of that field's entry.
	Name string `yaml:"name" short:"true" default:""`
	// Column is where it is in the record. Default: the name.
	Column string `yaml:"column"`
	// Positive says what is a click: an operator (>, >=, <, <=, ==, !=) and a number, as in ">= 4", or == or != and a text, as in
	// "== yes", blanks around which do not count. Empty: the number itself, which for cross entropy must be from 0 to 1 (libfm: or -1); true and false, also True and False or TRUE and FALSE, are 1 and 0.
	Positive string `yaml:"positive" default:""`
}

// Weight is how much an example counts. Short form: the name alone.
type Weight struct {
	// Name is what the weight is called. Default: the column. A snapshot remembers it.
	Name string `yaml:"name" short:"true" required:"true"`
	// Column is where it is in the record. Default: the name.
	Column string `yaml:"column"`
}

// Join adds the columns of a side table to each row: those of the line whose KeyColumn equals the row's Key.
type Join struct {
	// File is the side table, one line an entry, as it is read: not compressed.
	File string `yaml:"file" required:"true"`
	// Delimiter stands between columns; with a comma the lines are csv.
	Delimiter string `yaml:"delimiter" default:"\t"`
	// Columns names the side table's columns, in order; an empty name skips one.
	Columns []string `yaml:"columns" required:"true" blank:"true"`
	// Key is the row's column that is looked up.
	Key string `yaml:"key" required:"true"`
	// KeyColumn is the side table's column it is looked up in. Default: the same name as key.
	KeyColumn string `yaml:"key_column"`
	// Encoding is the file's.
	Encoding string `yaml:"encoding" default:"utf8" enum:"utf8|latin1"`
	// Prefix is put before the names of the joined columns.
	Prefix string `yaml:"prefix" default:""`
}

// OneOf implements [conf.Choice].
func (*Standardise) OneOf() {}

// Indicator is the name of the feature that says where this one is missing, or "".
func (f *Feature) Indicator() string {
	if f.Kind != "dense" || f.Missing != "indicator" {
		return ""
	}
	return f.Name + "_missing"
}

// LabelColumn is the column of a label in records of a format; "" is the label that each row of libfm begins with. The value of one of
// its fields may be a label too.
func (p *Parse) LabelColumn(l *Label, format string) string {
	if format == "libfm" && !slices.Contains(p.Fields, l.Column) {
		return ""
	}
	return l.Column
}

// attendsWithin reports whether a feature attends to one of its own slot, as a history of items to the item at hand: their ids mean
// the same things.
func (p *Parse) attendsWithin(f *Feature) bool {
	return slices.ContainsFunc(p.Features, func(g Feature) bool { return g.Name == f.Attends && g.Slot != nil && *g.Slot == *f.Slot })
}

// KeepsLast reports whether max keeps the last values of a row.
func (f *Feature) KeepsLast() bool { return f.Max > 0 && f.Keep == keepLast }

// keepWarnings names sequences that max cuts where the job does not say at which end: it depends on the data.
func (c *Config) keepWarnings() (out []string) {
	for i := range c.Parse.Features {
		f := &c.Parse.Features[i]
		if f.Attends == "" || !f.KeepsLast() || c.places.Set(fmt.Sprintf("parse.features[%d].keep", i)) {
			continue
		}
		out = append(out, fmt.Sprintf("parse.features[%d] keeps the last %d values of %q: the newest, if your lists have the oldest first. Set keep: last if so, or keep: first if they begin with the newest", i, f.Max, f.Column))
	}
	return out
}

// warnings lists what is odd about the features, but may be meant.
func (p *Parse) warnings(heads []Head) (out []string) {
	bySlot := map[int][]string{}
	for i, f := range p.Features {
		if f.Kind == "sparse" && f.Slot != nil && !p.attendsWithin(&f) {
			bySlot[*f.Slot] = append(bySlot[*f.Slot], f.Name)
		}
		for _, h := range heads {
			of := "the label's column"
			if h.Name != "" {
				of = "the column of head " + h.Name
			}
			if h.Label.Column != "" && f.Column == h.Label.Column {
				out = append(out, fmt.Sprintf("parse.features[%d] reads %q, %s: the model sees what it is to predict", i, f.Column, of))
			}
		}
		if p.Weight != nil && f.Column == p.Weight.Name {
			out = append(out, fmt.Sprintf("parse.features[%d] reads %q, the weight's column", i, f.Column))
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
		if names := bySlot[slot]; len(names) > 1 {
			out = append(out, fmt.Sprintf("the features %s share slot %d: equal ids of theirs share one embedding; give each a slot of its own unless they mean the same things", strings.Join(names, ", "), slot))
		}
	}
	return out
}
