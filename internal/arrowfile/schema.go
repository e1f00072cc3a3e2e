package arrowfile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/endian"

	"github.com/monolith-go/monolith/internal/flat"
)

// Kind is a type of Arrow's, as the union Type of Schema.fbs numbers them.
type Kind int

// The kinds that have names here.
const (
	Null      Kind = 1
	Int       Kind = 2
	Float     Kind = 3
	Binary    Kind = 4
	Text      Kind = 5
	List      Kind = 12
	Struct    Kind = 13
	FixedList Kind = 16
	Map       Kind = 17
	LargeText Kind = 20
	LargeList Kind = 21
)

// kindNames are what the kinds are called in messages.
var kindNames = [...]string{
	"of no type", "null", "integers", "floating-point numbers", "binary", "text", "booleans", "decimals", "dates", "times", "timestamps", "intervals", "lists", "structs", "unions", "binary of one size",
	"lists of one size", "maps", "durations", "large binary", "large text", "large lists", "run-end encoded", "views of binary", "views of text", "views of lists", "views of large lists",
}

// String is what a kind is called in messages.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("type %d", int(k))
	}
	return kindNames[k]
}

// Field is a column, or the values of one.
type Field struct {
	Name string
	Kind Kind
	// Bits is the width of an Int (8 to 64) or a Float (16, 32 or 64), and Signed belongs to the one.
	Bits   int64
	Signed bool
	// Len is how many values a list of a FixedList has, which may be anything.
	Len int64
	// Dictionary says that values are numbers of values in the file's dictionaries.
	Dictionary bool
	Children   []Field
}

// The places of fields in the tables of Schema.fbs.
const (
	schemaEndianness, schemaFields                              = 0, 1
	fieldName, fieldKind, fieldType, fieldDictionary, fieldKids = 0, 2, 3, 4, 5
	intBits, intSigned, floatPrecision, listLen                 = 0, 1, 0, 0
)

// maxFields and maxNames, the bytes of all names, bound what a schema may take of memory: it may point to the same bytes again and again.
const (
	maxFields = 4096
	maxNames  = 1 << 20
)

// schema reads the fields of a schema.
func (f *File) schema(t flat.Table) (err error) {
	if (t.Number(schemaEndianness, 2) == 1) != endian.IsBigEndian {
		return fmt.Errorf("written on a machine of the other byte order: %w", f.damaged)
	}
	f.Fields, err = (&fieldReader{f, maxFields, maxNames}).read(t.Tables(schemaFields))
	return err
}

// fieldReader reads fields, as long as there may be more of them and of bytes in their names.
type fieldReader struct {
	*File
	fields, names int
}

func (r *fieldReader) read(tables []flat.Table) ([]Field, error) {
	if r.fields -= len(tables); r.fields < 0 {
		return nil, fmt.Errorf("more than %d fields: %w", maxFields, r.damaged)
	}
	out := make([]Field, len(tables))
	for i, t := range tables {
		n, _ := t.Vector(fieldName, 1)
		if r.names -= n; r.names < 0 {
			return nil, fmt.Errorf("names of more than %d bytes: %w", maxNames, r.damaged)
		}
		to := &out[i]
		to.Name, to.Kind = t.Text(fieldName), Kind(t.Number(fieldKind, 1))
		switch of := t.Table(fieldType); to.Kind {
		case Int:
			to.Bits, to.Signed = of.Number(intBits, 4), of.Number(intSigned, 1) == 1
		case Float:
			to.Bits = 16 << of.Number(floatPrecision, 2)
		case FixedList:
			to.Len = of.Number(listLen, 4)
		}
		_, to.Dictionary = t.Slot(fieldDictionary)
		var err error
		if to.Children, err = r.read(t.Tables(fieldKids)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
