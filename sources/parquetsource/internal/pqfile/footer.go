package pqfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Physical is a physical type (parquet.thrift: Type).
type Physical int8

// The physical types. Group stands for a node that is not a leaf.
const (
	Group             Physical = -1
	Boolean           Physical = 0
	Int32             Physical = 1
	Int64             Physical = 2
	Int96             Physical = 3
	Float             Physical = 4
	Double            Physical = 5
	ByteArray         Physical = 6
	FixedLenByteArray Physical = 7
)

// String returns the name that the format gives the type.
func (p Physical) String() string {
	names := [...]string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}
	if p < 0 || int(p) >= len(names) {
		return "GROUP"
	}
	return names[p]
}

type repetition int8

const (
	required repetition = 0
	optional repetition = 1
	repeated repetition = 2
)

// Annotation is what a logical or converted type says of a node, as far as reading it depends on that.
type Annotation int8

// The annotations that matter. Decimal with a scale, Unsigned and Float16 change the meaning of the stored value.
const (
	Plain Annotation = iota
	Text             // STRING, ENUM, JSON
	List
	Map
	Decimal
	Unsigned
	Float16
	Date
	Time // of the day
	Timestamp
	Other
)

// Node is a node of the schema.
type Node struct {
	Name     string
	Physical Physical
	// Annotation describes what the value means; Scale is that of Decimal.
	Annotation Annotation
	Scale      int32
	Children   []*Node
	// Leaf is the number of the column chunk of a leaf, -1 for groups.
	Leaf int
	// MaxRep and MaxDef are the largest repetition and definition level. ElementDef is the definition level from which
	// on an element of the innermost repeated node exists; 0 when there is none.
	MaxRep, MaxDef, ElementDef uint8
	// ElementDefs are the ElementDef of each repeated node on the way to this one, the outermost first: MaxRep of them.
	ElementDefs []uint8

	width       int32 // of FixedLenByteArray
	numChildren int32
	rep         repetition
}

// Chunk describes where a column of a row group lies.
type Chunk struct {
	physical   Physical
	codec      int32
	numValues  int64
	compressed int64
	dataPage   int64
	dictPage   int64
	// index is where the offset index lies, of indexBytes; 0 bytes: there is none.
	index      int64
	indexBytes int32
}

// RowGroup is a run of rows.
type RowGroup struct {
	NumRows int64
	chunks  []Chunk
}

// Meta is the footer of a file. It is immutable and may be shared.
type Meta struct {
	Root      *Node
	RowGroups []RowGroup
	leaves    []*Node
	end       int64 // of the pages
}

// Unfinished reports whether a file of size bytes begins as a Parquet file and ends before its footer does: it is still being
// written or copied, or that was broken off. Errors: those of r.
func Unfinished(r io.ReaderAt, size int64) (bool, error) {
	const magic, encrypted = "PAR1", "PARE"
	head := make([]byte, min(size, int64(len(magic))))
	if err := readAt(r, head, 0); err != nil {
		return false, err
	}
	if !strings.HasPrefix(magic, string(head)) && !strings.HasPrefix(encrypted, string(head)) {
		return false, nil
	}
	if size < 12 {
		return true, nil
	}
	tail := make([]byte, len(magic))
	if err := readAt(r, tail, size-int64(len(tail))); err != nil {
		return false, err
	}
	return string(tail) != magic && string(tail) != encrypted, nil
}

// ReadMeta reads the footer of a file of size bytes. Errors wrap [ErrMalformed] or [ErrUnsupported], or are those of r.
func ReadMeta(r io.ReaderAt, size int64) (*Meta, error) {
	var tail [8]byte
	if size < 12 {
		return nil, malformed("%d bytes are too few", size)
	}
	if err := readAt(r, tail[:], size-8); err != nil {
		return nil, err
	}
	switch string(tail[4:]) {
	case "PAR1":
	case "PARE":
		return nil, unsupported("encrypted footer")
	default:
		return nil, malformed("ends with %q, not with PAR1", tail[4:])
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > size-12 || length > maxFooterBytes {
		return nil, malformed("footer of %d bytes in a file of %d", length, size)
	}
	b := make([]byte, length)
	if err := readAt(r, b, size-8-length); err != nil {
		return nil, err
	}
	m := &Meta{end: size - 8 - length}
	var schema []*Node
	d := decoder{b: b}
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 2 && typ == typeList:
			d.list(func(byte) { schema = append(schema, d.schemaElement()) })
		case id == 4 && typ == typeList:
			d.list(func(byte) { m.RowGroups = append(m.RowGroups, d.rowGroup()) })
		default:
			return false
		}
		return true
	})
	if d.err != nil {
		if errors.Is(d.err, errShort) {
			d.err = malformed("footer: %w", d.err)
		}
		return nil, d.err
	}
	if err := m.tree(schema); err != nil {
		return nil, err
	}
	for i, g := range m.RowGroups {
		if err := m.check(g); err != nil {
			return nil, fmt.Errorf("row group %d: %w", i, err)
		}
	}
	return m, nil
}

func readAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) || err == nil {
		return malformed("file ends at byte %d, within %d bytes at %d", off+int64(n), len(b), off)
	}
	return err
}

func (d *decoder) schemaElement() *Node {
	n := &Node{Physical: Group, Leaf: -1}
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == typeI32:
			v := d.int32()
			if v < 0 || v > int32(FixedLenByteArray) {
				d.fail(malformed("physical type %d", v))
			}
			n.Physical = Physical(v)
		case id == 2 && typ == typeI32:
			n.width = d.int32()
		case id == 3 && typ == typeI32:
			v := d.int32()
			if v < 0 || v > int32(repeated) {
				d.fail(malformed("repetition type %d", v))
			}
			n.rep = repetition(v)
		case id == 4 && typ == typeBinary:
			n.Name = string(d.bytes())
		case id == 5 && typ == typeI32:
			n.numChildren = d.int32()
		case id == 6 && typ == typeI32:
			if a := converted(d.int32()); n.Annotation == Plain {
				n.Annotation = a
			}
		case id == 7 && typ == typeI32:
			n.Scale = d.int32()
		case id == 10 && typ == typeStruct:
			d.logical(n)
		default:
			return false
		}
		return true
	})
	return n
}

// converted translates parquet.thrift's ConvertedType.
func converted(v int32) Annotation {
	switch v {
	case 0, 4, 19: // UTF8, ENUM, JSON
		return Text
	case 1, 2: // MAP, MAP_KEY_VALUE
		return Map
	case 3:
		return List
	case 5:
		return Decimal
	case 6:
		return Date
	case 7, 8: // TIME_MILLIS, TIME_MICROS
		return Time
	case 9, 10: // TIMESTAMP_MILLIS, TIMESTAMP_MICROS
		return Timestamp
	case 11, 12, 13, 14: // UINT_8 to UINT_64
		return Unsigned
	}
	return Other
}

// logical reads parquet.thrift's LogicalType, a union.
func (d *decoder) logical(n *Node) {
	d.structure(func(id int16, typ byte) bool {
		switch id {
		case 1, 4, 12: // STRING, ENUM, JSON
			n.Annotation = Text
		case 2:
			n.Annotation = Map
		case 3:
			n.Annotation = List
		case 5:
			n.Annotation = Decimal
			if typ == typeStruct {
				d.structure(func(id int16, typ byte) bool {
					if id == 1 && typ == typeI32 {
						n.Scale = d.int32()
						return true
					}
					return false
				})
				return true
			}
		case 6:
			n.Annotation = Date
		case 7:
			n.Annotation = Time
		case 8:
			n.Annotation = Timestamp
		case 10:
			n.Annotation = Other
			if typ == typeStruct {
				d.structure(func(id int16, typ byte) bool {
					if id == 2 && typ == typeFalse { // isSigned
						n.Annotation = Unsigned
					}
					return false
				})
				return true
			}
		case 15:
			n.Annotation = Float16
		default:
			n.Annotation = Other
		}
		return false
	})
}

func (d *decoder) rowGroup() RowGroup {
	var g RowGroup
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == typeList:
			d.list(func(byte) { g.chunks = append(g.chunks, d.columnChunk()) })
		case id == 3 && typ == typeI64:
			g.NumRows = d.int()
		default:
			return false
		}
		return true
	})
	return g
}

func (d *decoder) columnChunk() Chunk {
	c := Chunk{physical: Group}
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == typeBinary:
			if path := d.bytes(); len(path) > 0 {
				d.fail(unsupported("column chunk in another file, %q", path))
			}
		case id == 3 && typ == typeStruct:
			d.columnMeta(&c)
		case id == 4 && typ == typeI64:
			c.index = d.int()
		case id == 5 && typ == typeI32:
			c.indexBytes = d.int32()
		default:
			return false
		}
		return true
	})
	return c
}

func (d *decoder) columnMeta(c *Chunk) {
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == typeI32:
			v := d.int32()
			if v < 0 || v > int32(FixedLenByteArray) {
				d.fail(malformed("physical type %d", v))
			}
			c.physical = Physical(v)
		case id == 4 && typ == typeI32:
			c.codec = d.int32()
		case id == 5 && typ == typeI64:
			c.numValues = d.int()
		case id == 7 && typ == typeI64:
			c.compressed = d.int()
		case id == 9 && typ == typeI64:
			c.dataPage = d.int()
		case id == 11 && typ == typeI64:
			c.dictPage = d.int()
		default:
			return false
		}
		return true
	})
}

// tree makes the schema's tree of its depth-first list and sets the levels.
func (m *Meta) tree(list []*Node) error {
	if len(list) == 0 {
		return malformed("no schema")
	}
	m.Root = list[0]
	next := 1
	var build func(n *Node, depth int) error
	build = func(n *Node, depth int) error {
		if depth > maxDepth {
			return malformed("schema nested more than %d deep", maxDepth)
		}
		if n.Physical != Group {
			if n.Physical == FixedLenByteArray && n.width <= 0 {
				return malformed("column %q has values of %d bytes", n.Name, n.width)
			}
			n.Leaf = len(m.leaves)
			m.leaves = append(m.leaves, n)
			return nil
		}
		if n.numChildren < 0 || int(n.numChildren) > len(list)-next {
			return malformed("group %q has %d children, %d nodes are left", n.Name, n.numChildren, len(list)-next)
		}
		for range n.numChildren {
			if next == len(list) {
				return malformed("group %q has more children than there are nodes", n.Name)
			}
			c := list[next]
			next++
			c.MaxRep, c.MaxDef, c.ElementDef, c.ElementDefs = n.MaxRep, n.MaxDef, n.ElementDef, n.ElementDefs
			if c.rep != required {
				c.MaxDef++
			}
			if c.rep == repeated {
				c.MaxRep++
				c.ElementDef = c.MaxDef
				c.ElementDefs = append(slices.Clip(c.ElementDefs), c.MaxDef)
			}
			n.Children = append(n.Children, c)
			if err := build(c, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if m.Root.Physical != Group {
		return malformed("the schema's root is a column")
	}
	if err := build(m.Root, 0); err != nil {
		return err
	}
	if next != len(list) {
		return malformed("%d nodes of the schema belong to no group", len(list)-next)
	}
	return nil
}

// check compares a row group with the schema and the file.
func (m *Meta) check(g RowGroup) error {
	if g.NumRows < 0 || len(g.chunks) != len(m.leaves) {
		return malformed("%d rows, %d column chunks for %d columns", g.NumRows, len(g.chunks), len(m.leaves))
	}
	for i, c := range g.chunks {
		leaf := m.leaves[i]
		switch {
		case c.physical != leaf.Physical:
			return malformed("column %q is %v, its chunk %v", leaf.Name, leaf.Physical, c.physical)
		case c.numValues < 0 || leaf.MaxRep == 0 && c.numValues != g.NumRows:
			return malformed("column %q has %d values in %d rows", leaf.Name, c.numValues, g.NumRows)
		case c.start() < 0 || c.compressed < 0 || c.start() > m.end:
			return malformed("column %q lies at [%d,+%d) of %d bytes", leaf.Name, c.start(), c.compressed, m.end)
		}
	}
	return nil
}

// start is where a chunk's first page lies. Some writers leave the dictionary's place out, or set it to a later one.
func (c Chunk) start() int64 {
	if c.dictPage > 0 && c.dictPage < c.dataPage {
		return c.dictPage
	}
	return c.dataPage
}
