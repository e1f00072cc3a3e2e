package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
)

// Mapping says which of a checkpoint's tables become which of a job's. It is a YAML file; without one, rows go to the table of the
// sparse feature whose slot their id has, and have the segments of that table in its order.
//
//	version: 1
//	fids: v2
//	slots: [{from: 101, to: user}]
//	tables:
//	  - {name: MonolithHashTable_0b97*, to: embedding, segments: [bias, vec]}
//	dense:
//	  - {name: dense/kernel, to: deep.0.weight}
type Mapping struct {
	// Version is that of the file's format.
	Version int `yaml:"version" required:"true" min:"1" max:"1"`
	// FIDs says how the checkpoint's ids are made: v2, of 15 bits of slot and 48 of signature, or v1, of 10 and 54. The six highest
	// bits of a v1 signature are lost, as upstream loses them.
	FIDs string `yaml:"fids" default:"v2" enum:"v2|v1"`
	// Slots give ids another slot than they have; those that are not named keep theirs.
	Slots []SlotMapping `yaml:"slots"`
	// Tables say where tables go, the first that fits a name counts. Those that fit none go by slots.
	Tables []TableMapping `yaml:"tables"`
	// Dense says which dense variable becomes which dense tensor. A tensor that is not named is made of the variable of its own name,
	// or starts over.
	Dense []DenseMapping `yaml:"dense"`
}

// SlotMapping gives ids of a slot another one.
type SlotMapping struct {
	// From is the slot in the checkpoint.
	From int `yaml:"from" required:"true" min:"0" max:"32767"`
	// To is a sparse feature of the job, or a number; skip leaves rows of the slot out.
	To string `yaml:"to" required:"true"`
}

// TableMapping says where a table goes.
type TableMapping struct {
	// Name is a pattern (*, ?, [...]) of what the table is called in the checkpoint: a file without -00000-of-00001, or a table of a
	// file that holds many.
	Name string `yaml:"name" required:"true"`
	// To is a table of the job, which takes all rows whatever their slot is; skip leaves them out; empty: by slots.
	To string `yaml:"to"`
	// Segments are what a row of the checkpoint is made of, in its order: segments of the job's table by name, and skip:N for N numbers
	// that it has no use for. Empty: those of the job's table. Segments that are not named have their initial values.
	Segments []string `yaml:"segments"`
}

// DenseMapping names a dense variable.
type DenseMapping struct {
	// Name is what the variable is called in the checkpoint.
	Name string `yaml:"name" required:"true"`
	// To is a dense tensor of the job's model, as `monolith inspect` calls it.
	To string `yaml:"to" required:"true"`
	// Transpose exchanges rows and columns of a matrix.
	Transpose bool `yaml:"transpose" default:"false"`
}

// skip is the word for what is left out.
const skip = "skip"

// ReadMapping reads a mapping from a file. Errors: [pipeline.ErrConfig] with every fault.
func ReadMapping(path string) (*Mapping, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Config("job: no such mapping file: %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
	}
	return DecodeMapping(data, path)
}

// DecodeMapping is [ReadMapping] of what is in memory; name stands for the file in messages.
func DecodeMapping(data []byte, name string) (*Mapping, error) {
	schema := conf.New[Mapping](conf.Options{Noun: "mapping", Empty: "; a mapping begins with `version: 1`", Fixed: []string{"version"}})
	m := &Mapping{}
	places, faults := schema.Decode(data, name, conf.Layers{}, m)
	if places != nil {
		faults = conf.Merge(faults, schema.Check(m, places))
	}
	if len(faults) > 0 {
		return nil, fault.Config("%s", conf.Message("mapping", faults))
	}
	return m, nil
}

// segment says where a segment of the job's table comes from.
type segment struct {
	at   int // its first number in a row of the checkpoint; -1: nowhere
	dump int // which of the row's segments it is
}

// layout is how rows of the checkpoint become rows of a table.
type layout struct {
	dim      int // numbers of a row of the checkpoint
	dumps    int // segments of it
	segments []segment
	// owners are the rules of the checkpoint's segments as far as the job has them, -1 for those that it has no use for: the job's
	// segment.
	owners []int
}

// layoutOf reads what a mapping says of segments.
func layoutOf(t param.Table, names []string) (*layout, error) {
	l := &layout{}
	for range t.Segments {
		l.segments = append(l.segments, segment{at: -1})
	}
	if len(names) == 0 {
		for _, s := range t.Segments {
			names = append(names, s.Name)
		}
	}
	known := make([]string, 0, len(t.Segments))
	for _, s := range t.Segments {
		known = append(known, s.Name)
	}
next:
	for i, name := range names {
		if n, ok := strings.CutPrefix(name, skip+":"); ok {
			dim, err := strconv.Atoi(n)
			if err != nil || dim < 1 || dim > 1<<20 {
				return nil, fmt.Errorf("segment %q: skip:N leaves out N numbers, from 1 on", name)
			}
			l.dim, l.owners = l.dim+dim, append(l.owners, -1)
			continue
		}
		for j, s := range t.Segments {
			if s.Name != name {
				continue
			}
			if l.segments[j].at >= 0 {
				return nil, fmt.Errorf("segment %q is named twice", name)
			}
			l.segments[j] = segment{at: l.dim, dump: i}
			l.dim, l.owners = l.dim+s.Dim, append(l.owners, j)
			continue next
		}
		return nil, fmt.Errorf("table %s has no segment %q; it has %s%s", t.Name, name, strings.Join(known, ", "), nearest.Suggest(name, known))
	}
	l.dumps = len(names)
	return l, nil
}

// matches reports whether a pattern of the mapping means a table.
func (m *TableMapping) matches(names ...string) bool {
	for _, name := range names {
		if ok, err := filepath.Match(m.Name, name); ok && err == nil {
			return true
		}
	}
	return false
}
