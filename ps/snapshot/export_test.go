package snapshot

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// What the fuzz targets reach into.
var DecodeManifest = decodeManifest

func ReadRows(b []byte, t Table, each func(*table.Rows) error) (int64, error) {
	return readRows(memSource{bytes.NewReader(b)}, nil, t, each)
}

// ReadRowsAndState is ReadRows with a file of state beside it.
func ReadRowsAndState(b, state []byte, t Table, each func(*table.Rows) error) (int64, error) {
	return readRows(memSource{bytes.NewReader(b)}, memSource{bytes.NewReader(state)}, t, each)
}

// readRows decodes files that need not be sound.
func readRows(src, state fsx.File, t Table, each func(*table.Rows) error) (n int64, err error) {
	r, err := openRowFiles(src, state, t)
	for err == nil {
		var rows *table.Rows
		if rows, n, err = r.next(); errors.Is(err, io.EOF) {
			return n, nil
		}
		if err == nil {
			err = each(rows)
		}
	}
	return n, err
}

func TablesOf(l *param.Layout) []Table { return tablesOf(l) }

func ReadTensors(b []byte) ([]Tensor, error) { return readTensors(memSource{bytes.NewReader(b)}) }

type memSource struct{ *bytes.Reader }

func (m memSource) Info() fsx.Info { return fsx.Info{Size: m.Size()} }

func (memSource) Close() error { return nil }

func (i *Info) Encode() ([]byte, error) { return i.encode() }

// ReadRemoved decodes a file of removed fids that need not be sound, and returns how many there are.
func ReadRemoved(b []byte) (n int, err error) {
	r, err := openRemoved(memSource{bytes.NewReader(b)})
	for err == nil {
		var keys []int64
		if keys, err = r.next(); len(keys) == 0 {
			break
		}
		n += len(keys)
	}
	return n, err
}

// Overlap reports whether shard a of n may have rows that shard b of m had.
func Overlap(a, n, b, m int) bool { return overlap(a, n, b, m) }

// WriteFault is what a writer says of an error of writing.
func WriteFault(path string, err error) error { return fail(path, 0, 0, err) }

// AgesOf are ages by a clock of a test's own.
func AgesOf(clock func() (wall time.Time, run time.Duration)) *Ages { return &Ages{clock: clock} }
