package serving

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/clip"
	"github.com/monolith-go/monolith/internal/instance"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// Form is what examples of a request are.
type Form uint8

// The forms of examples. In all but the last the recipe makes features of them, as it does in training.
const (
	// FormJSON is a JSON object an example, with the values of features by their names.
	FormJSON Form = iota
	// FormExample is a serialized tf.Example an example, with the columns that records of the job have.
	FormExample
	// FormColumns is a column a feature, by its name.
	FormColumns
	// FormFeatures is a column a feature, with what parsing makes of it: fids of sparse ones, final numbers of dense ones.
	FormFeatures
)

// Input is the examples of a request.
type Input struct {
	Form Form
	// Records are the examples of FormJSON and FormExample, one each.
	Records [][]byte
	// Columns are those of FormColumns and FormFeatures, by the names of features, of Rows rows each.
	Columns map[string]*Column
	Rows    int
}

// NumRows is the number of examples.
func (in *Input) NumRows() int {
	if in.Form == FormJSON || in.Form == FormExample {
		return len(in.Records)
	}
	return in.Rows
}

// Column is the values of a feature, any number a row: row r has those from Offsets[r] to Offsets[r+1]. One of Ints, Floats and Texts has them, by Type.
type Column struct {
	Type    ColumnType
	Offsets []int32
	// Unsigned says that Ints are the 64 bits of numbers without a sign.
	Unsigned bool
	Ints     []int64
	Floats   []float32
	Texts    [][]byte
}

// ColumnType is the type of a column's values.
type ColumnType uint8

// The types of values.
const (
	Ints ColumnType = iota
	Floats
	Texts
)

// String names the type in errors.
func (t ColumnType) String() string { return [...]string{"integers", "floats", "text"}[t] }

// len is how many values there are.
func (c *Column) len() int { return [...]int{len(c.Ints), len(c.Floats), len(c.Texts)}[c.Type] }

// check refuses what does not belong together.
func (c *Column) check(name string, rows int) error {
	if c == nil || len(c.Offsets) != rows+1 {
		return invalid("feature %q does not have %d examples, as others do", name, rows)
	}
	if c.Offsets[0] != 0 || !slices.IsSorted(c.Offsets) || int(c.Offsets[rows]) != c.len() {
		return invalid("feature %q has rows that do not lie in its %d values", name, c.len())
	}
	return nil
}

// inputs is what a model wants to know of an example.
type inputs struct {
	features []model.Feature
	names    []string // of features, in the order of the model
	// known and knownRaw have each of names and of raw as itself, to be found by the bytes of one.
	known, knownRaw map[string]string
	types           map[string]ColumnType
	// recipe is how raw values become features, by the features' own names; records is the same by the columns of the job's records. raw has the names that it
	// reads. recipeErr says why there is none.
	recipe, records parse.Options
	raw             []string
	recipeErr       error
	// own are the columns of the job's records, as rows of bytedance/monolith may have them.
	own instance.Columns
}

// newInputs describes the inputs of a model with a recipe, or with the reason why there is none.
func newInputs(features []model.Feature, recipe parse.Options, err error) *inputs {
	in := &inputs{features: features, recipeErr: err, types: map[string]ColumnType{}, known: map[string]string{}, knownRaw: map[string]string{}}
	for _, f := range features {
		in.names = append(in.names, f.Name)
		in.known[f.Name] = f.Name
		if f.Kind == model.Dense {
			in.types[f.Name] = Floats
		}
	}
	if err != nil {
		return in
	}
	made := map[string]bool{}
	recipe.Labels, recipe.Weight, recipe.Keys, recipe.LineID, recipe.Joins, recipe.Fields, recipe.Columns = nil, parse.Weight{}, nil, nil, nil, nil, nil
	recipe.Features = slices.Clone(recipe.Features)
	in.records = recipe
	in.records.Format = parse.TFExample
	in.own = ownColumns(recipe.Features)
	in.recipe = recipe
	in.recipe.Features = slices.Clone(recipe.Features)
	for i := range in.recipe.Features {
		f := &in.recipe.Features[i]
		f.Column, f.Values = "", ""
		recipe.Features[i].Values = ""
		in.raw = append(in.raw, f.Name)
		in.knownRaw[f.Name] = f.Name
		made[f.Name], made[f.Indicator] = true, true
	}
	for _, name := range in.names {
		if !made[name] {
			in.recipeErr = fmt.Errorf("the recipe of the model does not make its feature %q, which a stage of the job does; take the signature %s", name, SignatureFeatures)
		}
	}
	return in
}

// ownColumns are the columns that features are made of, those of sparse ones by their slots too.
func ownColumns(features []parse.Feature) instance.Columns {
	out := instance.Columns{Names: map[string]bool{}, Slots: map[int][]string{}}
	for i := range features {
		f := &features[i]
		name := cmp.Or(f.Column, f.Name)
		out.Names[name] = true
		if f.Kind != parse.Dense && !slices.Contains(out.Slots[f.Slot], name) {
			out.Slots[f.Slot] = append(out.Slots[f.Slot], name)
		}
	}
	return out
}

// known refuses names that are none of the features.
func known(name string, names []string) error {
	switch {
	case slices.Contains(names, name):
		return nil
	case len(name) > clip.Most: // nothing is near to it
		return invalid("the model has no feature %q", name)
	}
	return invalid("the model has no feature %q%s", name, nearest.Suggest(name, names))
}

// knownOf is [known] of an example.
func knownOf(example int, name string, names []string) error {
	err := known(name, names)
	if err == nil {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "example %d: %s", example, status.Convert(err).Message())
}

// blocks makes a block of records.
func blocks(records [][]byte) (*pipeline.Block, error) {
	size := 0
	for _, r := range records {
		size += len(r)
	}
	if int64(size) > math.MaxInt32 {
		return nil, invalid("the examples have %d bytes together, %d is the most", size, math.MaxInt32)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, pipeline.BlockSchema(false, false))
	defer b.Release()
	payload, at := b.Field(0).(*array.BinaryBuilder), b.Field(1).(*array.Int64Builder)
	payload.Reserve(len(records))
	payload.ReserveData(size)
	for i, r := range records {
		payload.Append(r)
		at.Append(int64(i + 1))
	}
	return pipeline.NewBlock(b.NewRecordBatch(), origin(len(records)))
}

func origin(rows int) pipeline.Origin {
	return pipeline.Origin{Source: "request", Split: "examples", To: pipeline.Position(rows)}
}

// position is the column of positions.
func positions(rows int) (arrow.Field, arrow.Array) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(rows)
	for i := range rows {
		b.Append(int64(i + 1))
	}
	return arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}, b.NewArray()
}

// batch joins columns to a batch, which owns them.
func batch(fields []arrow.Field, cols []arrow.Array, rows int) (*pipeline.Batch, error) {
	field, col := positions(rows)
	fields, cols = append(fields, field), append(cols, col)
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(rows))
	for _, c := range cols {
		c.Release()
	}
	out, err := pipeline.NewBatch(rec, origin(rows))
	if err != nil {
		rec.Release()
	}
	return out, err
}

// columns makes a batch of raw columns; features that the request does not have are missing in all rows.
func (in *inputs) columns(x *Input) (*pipeline.Batch, error) {
	for name := range x.Columns {
		if err := known(name, in.raw); err != nil {
			return nil, err
		}
	}
	none := make([]int32, x.Rows+1)
	var fields []arrow.Field
	var cols []arrow.Array
	for i, name := range in.raw {
		c := x.Columns[name]
		if c == nil {
			c = &Column{Type: rawType(&in.recipe.Features[i]), Offsets: none}
		} else if err := c.check(name, x.Rows); err != nil {
			return nil, err
		}
		col := c.list()
		fields, cols = append(fields, arrow.Field{Name: name, Type: col.DataType()}), append(cols, col)
	}
	return batch(fields, cols, x.Rows)
}

// rawType is a type that values of a feature may have.
func rawType(f *parse.Feature) ColumnType {
	switch {
	case f.Split != "" || f.Regexp != "" || f.Type == parse.String:
		return Texts
	case f.Kind == parse.Dense || f.Type == parse.Float:
		return Floats
	}
	return Ints
}

// list is the column as Arrow's.
func (c *Column) list() arrow.Array {
	var b *array.ListBuilder
	switch c.Type {
	case Ints:
		if c.Unsigned {
			b = array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Uint64)
			b.ValueBuilder().(*array.Uint64Builder).AppendValues(arrow.Uint64Traits.CastFromBytes(arrow.Int64Traits.CastToBytes(c.Ints)), nil)
			break
		}
		b = array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64)
		b.ValueBuilder().(*array.Int64Builder).AppendValues(c.Ints, nil)
	case Floats:
		b = array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Float32)
		b.ValueBuilder().(*array.Float32Builder).AppendValues(c.Floats, nil)
	case Texts:
		b = array.NewListBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		b.ValueBuilder().(*array.BinaryBuilder).AppendValues(c.Texts, nil)
	}
	defer b.Release()
	rows := len(c.Offsets) - 1
	valid := make([]bool, rows)
	for i := range valid {
		valid[i] = true
	}
	b.AppendValues(c.Offsets[:rows], valid)
	return b.NewArray()
}
