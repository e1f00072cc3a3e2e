package parse

import "github.com/monolith-go/monolith/internal/example"

// tfRecord reads tf.Example.
type tfRecord struct {
	scanner *example.Scanner
	found   []example.Value
}

func newTFRecord(p *program) (*tfRecord, error) {
	s, err := example.NewScanner(p.columns)
	if err != nil {
		return nil, err
	}
	return &tfRecord{scanner: s}, nil
}

func (r *tfRecord) read(payload []byte) error {
	var err error
	if r.found, err = r.scanner.Scan(payload); err != nil {
		return &rowError{reasonExample, err}
	}
	return nil
}

func (r *tfRecord) get(col int, v *values) error {
	v.reset()
	var err error
	switch x := r.found[col]; x.Kind {
	case example.Int64:
		if v.ints, err = x.AppendInt64s(v.ints); len(v.ints) > 0 {
			v.kind = ints
		}
	case example.Float:
		if v.floats, err = x.AppendFloats(v.floats); len(v.floats) > 0 {
			v.kind = floats
		}
	case example.Bytes:
		if v.texts, err = x.AppendBytes(v.texts); len(v.texts) > 0 {
			v.kind = texts
		}
	}
	if err != nil {
		return &rowError{reasonExample, err}
	}
	return nil
}
