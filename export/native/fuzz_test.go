package native

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// FuzzSlab: whatever a slab holds in front of a footer with the right checksum, opening it ends in ErrCorrupt or in a slab where lookups stay inside of it, and
// find nothing but ids that it has.
func FuzzSlab(f *testing.F) {
	ids := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(table.Unhash(1<<62))), uint64(table.Unhash(3<<62)))
	body := append(append(make([]byte, headBytes+8), ids...), 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0)
	f.Add(body, int64(2), int64(1), int64(2), uint8(62), uint64(1<<62), uint64(3<<62))
	f.Add(body, int64(2), int64(1), int64(2), uint8(63), uint64(1<<62), uint64(3<<62))
	f.Add(body[:headBytes], int64(1<<31), int64(1<<24), int64(1), uint8(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, body []byte, rows, dim, parts int64, shift uint8, first, last uint64) {
		text, err := json.Marshal(footer{Rows: rows, Dim: dim, Parts: parts, Shift: shift, First: first, Last: last, CRC32C: crc32.Checksum(body, castagnoli)})
		if err != nil {
			t.Fatal(err)
		}
		b := append(append([]byte{}, body...), text...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
		b = append(binary.LittleEndian.AppendUint32(b, crc32.Checksum(text, castagnoli)), magic...)
		name := filepath.Join(t.TempDir(), "x.slab")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := openSlab(t.Context(), name, file{Bytes: int64(len(b))})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v", err)
			}
			return
		}
		defer func() {
			if err := unmapFile(s.mapped); err != nil {
				t.Error(err)
			}
		}()
		if int64(len(s.ids)) != rows || int64(len(s.weights)) != rows*dim {
			t.Fatalf("%d ids and %d weights of %d rows of %d", len(s.ids), len(s.weights), rows, dim)
		}
		sound := s.verify(t.Context(), name, make([]byte, 64), func(int) error { return nil }) == nil
		for i, id := range append([]int64{table.Unhash(first), table.Unhash(last), 0, -1}, s.ids[:min(len(s.ids), 1000)]...) {
			h, row := table.Hash(id), -1
			if from, to, ok := s.part(h); ok {
				row = s.find(h, id, from, to)
			}
			if row >= 0 {
				_ = s.weights[row*int(dim):][:dim]
				if s.ids[row] != id {
					t.Errorf("id %d is found in row %d, which has another", id, row)
				}
			}
			if sound && i >= 4 && row != i-4 {
				t.Errorf("id %d of row %d is found in row %d", id, i-4, row)
			}
		}
	})
}

// FuzzManifest: what is no manifest is ErrCorrupt or ErrVersion.
func FuzzManifest(f *testing.F) {
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{2, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: b.Linear(x, w, nil)})
	if err != nil {
		f.Fatal(err)
	}
	m := manifest{Format: formatName, Version: Version, Files: []file{{Name: denseName, Table: -1, Bytes: 8}}}
	if m.Model, err = json.Marshal(&export.Model{Kind: "graph", Graph: g, Tables: []export.Table{}}); err == nil {
		m.Checksum, err = m.sum()
	}
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := decodeManifest(text); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":"monolith-native","version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// The checksum made right, so that what is behind it is reached.
		var m manifest
		if json.Unmarshal(text, &m) == nil {
			if sum, err := m.sum(); err == nil {
				m.Checksum = sum
				if again, err := json.Marshal(m); err == nil {
					text = again
				}
			}
		}
		if _, _, err := decodeManifest(text); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Errorf("%v", err)
		}
	})
}
