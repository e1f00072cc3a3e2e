package parse

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// feature checks one feature and resolves its column.
func (c *compiler) feature(o *Feature, index int) {
	what := fmt.Sprintf("feature %q", o.Name)
	oneOf(c, what+": kind", o.Kind, "", Sparse, Dense)
	oneOf(c, what+": type", o.Type, "", Auto, Int, String, Float)
	oneOf(c, what+": hash", o.Hash, "", HashNone, HashInt)
	oneOf(c, what+": keep", o.Keep, "", KeepFirst, KeepLast)
	f := feature{
		name: o.Name, join: -1, kind: Sparse, typ: Auto, hash: o.Hash == HashInt, literal: o.Literal, max: o.Max, last: o.Keep == KeepLast, dim: 1, values: o.Values,
		base: int64(o.Slot) << fid.SignatureBits, indicator: o.Indicator, buckets: o.Buckets, ignore: newIgnored(o.Ignore),
	}
	if o.Kind != "" {
		f.kind = o.Kind
	}
	if o.Type != "" {
		f.typ = o.Type
	}
	if o.Split != "" {
		f.split = []byte(o.Split)
	}
	column := o.Column
	if column == "" {
		column = o.Name
	}
	for i := range c.joins {
		if at, ok := c.joins[i].column[column]; ok {
			f.join, f.col = i, at
			c.joins[i].feature = append(c.joins[i].feature, index)
		}
	}
	if f.join < 0 && column != "" {
		f.col = c.column(what, column)
	}
	if c.Format == LibFM && column == libfmLabel {
		c.fault("%s takes libfm's label", what)
	}
	f.text = c.Format == CSV || c.Format == TSV || f.join >= 0 || o.Split != "" || o.Regexp != ""
	if o.Regexp != "" {
		var err error
		if f.re, err = regexp.Compile(o.Regexp); err != nil {
			c.fault("%s: regexp: %w", what, err)
		} else if f.re.NumSubexp() > 1 {
			c.fault("%s: regexp %q has %d groups, not 0 or 1", what, o.Regexp, f.re.NumSubexp())
		}
	}
	if o.Values != "" && (c.Format != LibFM || f.kind == Dense || f.join >= 0) {
		c.fault("%s: values are for sparse features of libfm", what)
	}
	if o.Buckets != nil && (f.typ == Auto || f.typ == Float) {
		f.typ = Float
	}
	if f.kind == Dense {
		c.dense(what, o, &f)
	} else {
		c.sparse(what, o, &f)
	}
	c.features = append(c.features, f)
}

func (c *compiler) sparse(what string, o *Feature, f *feature) {
	if o.Slot < 1 || o.Slot >= fid.NumSlots {
		c.fault("%s: slot %d is outside 1 to %d", what, o.Slot, fid.NumSlots-1)
	}
	if o.Dim != 0 {
		c.fault("%s: dim is for dense features", what)
	}
	if o.Max < 0 {
		c.fault("%s: max is %d", what, o.Max)
	}
	if f.hash && f.typ == Float {
		c.fault("%s: hash is for integers and text, not for type %s", what, f.typ)
	}
	if c.Format == LibFM && f.join < 0 && f.typ != Auto && f.typ != Int {
		c.fault("%s: type is %s, but libfm has integers", what, f.typ)
	}
	c.buckets(what, o, f)
	if o.Clip != nil || o.Log || o.Std != 0 || o.Mean != 0 || o.KeepMissing || o.Indicator != "" {
		c.fault("%s: clip, log, mean, std and an indicator are for dense features", what)
	}
	if o.Default == "" {
		return
	}
	typed := *f
	if c.Format == LibFM && f.join < 0 {
		typed.typ = Int
	}
	if typed.absent([]byte(o.Default)) {
		c.fault("%s: default %q is what stands for a missing value", what, o.Default)
	}
	if typed.ignores([]byte(o.Default)) {
		c.fault("%s: default %q is among the values to ignore", what, o.Default)
	}
	x, err := typed.textSignature([]byte(o.Default))
	if err != nil {
		c.fault("%s: default: %w", what, err)
	}
	f.defaultFids = []int64{f.base | x}
}

// buckets checks the boundaries of a sparse feature.
func (c *compiler) buckets(what string, o *Feature, f *feature) {
	if o.Buckets == nil {
		if o.MissingBucket {
			c.fault("%s: a bucket for missing values, but no buckets", what)
		}
		return
	}
	if f.typ != Float {
		c.fault("%s: buckets are of numbers, but the type is %s", what, f.typ)
	}
	if c.Format == LibFM && f.join < 0 {
		c.fault("%s: buckets are of numbers, but libfm has integers", what)
	}
	for i, b := range o.Buckets {
		if b-b != 0 || i > 0 && b <= o.Buckets[i-1] {
			c.fault("%s: the boundaries of buckets do not ascend: %g at place %d", what, b, i+1)
		}
	}
	if o.MissingBucket {
		f.defaultFids = []int64{f.base | int64(len(o.Buckets)+1)}
		if o.Default != "" {
			c.fault("%s: missing values have a default and a bucket of their own", what)
		}
	}
}

func (c *compiler) dense(what string, o *Feature, f *feature) {
	if o.Slot != 0 {
		c.fault("%s: slot is for sparse features", what)
	}
	if o.Max != 0 {
		c.fault("%s: max is for sparse features", what)
	}
	if o.Keep != "" {
		c.fault("%s: keep is for sparse features", what)
	}
	if f.hash {
		c.fault("%s: hash is for sparse features", what)
	}
	if f.typ == String {
		c.fault("%s: type is string, but dense features are numbers", what)
	}
	if o.Dim < 0 {
		c.fault("%s: dim is %d", what, o.Dim)
		return
	}
	f.dim = max(1, o.Dim)
	if f.dim > 1 && o.Split == "" && (c.Format == CSV || c.Format == TSV || f.join >= 0) {
		c.fault("%s: dim is %d, but without split text is one number", what, f.dim)
	}
	if c.Format == LibFM && f.join < 0 && (len(c.Fields) == 0 || f.dim > 1) {
		c.fault("%s: a dense feature of libfm is the value of one of the fields", what)
	}
	if o.Buckets != nil || o.MissingBucket {
		c.fault("%s: buckets make a sparse feature", what)
	}
	if n := len(o.Clip); n != 0 && (n != 2 || !(o.Clip[0] < o.Clip[1])) {
		c.fault("%s: clip is %g, not a lower and an upper bound", what, o.Clip)
	}
	if !(o.Std >= 0) || o.Std-o.Std != 0 || o.Mean-o.Mean != 0 {
		c.fault("%s: mean is %g and std %g", what, o.Mean, o.Std)
	}
	f.numbers = numbers{clip: o.Clip, log: o.Log, mean: o.Mean, std: o.Std, most: maxDense}
	var value float32
	switch {
	case o.Default != "":
		var ok bool
		if value, ok = parseFloat([]byte(o.Default)); !ok || !finite(value) {
			c.fault("%s: default %q is not a number", what, o.Default)
		}
		value = f.numbers.apply(value)
	case o.KeepMissing:
		value = float32(math.NaN())
	}
	if o.KeepMissing {
		f.numbers.most = maxObserved
	}
	f.defaultFloats = slices.Repeat([]float32{value}, f.dim)
}
