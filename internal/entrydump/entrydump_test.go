package entrydump_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// samples is the model that upstream's own tests export, or skips.
func samples(t *testing.T) string {
	t.Helper()
	data := os.Getenv("MONOLITH_DATA")
	dir := filepath.Join(data, "formats/bytedance_monolith/native_training/model_export/testdata/saved_model")
	if _, err := os.Stat(dir); data == "" || err != nil {
		testbed.Require(t, "data", "upstream's exported model is not there; MONOLITH_DATA names the folder of data sets")
	}
	return dir
}

// readAll reads a checkpoint, each entry as it was, by table.
func readAll(t *testing.T, c *entrydump.Checkpoint) map[string][]entrydump.Entry {
	t.Helper()
	out := map[string][]entrydump.Entry{}
	for _, f := range c.Files {
		for shard := range f.Shards {
			r, err := c.Open(t.Context(), fsx.Local{}, f, shard)
			if err != nil {
				t.Fatal(err)
			}
			for {
				table, e, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				out[table] = append(out[table], clone(e))
			}
			if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s, shard %d: the end does not repeat: %v", f.Name, shard, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return out
}

func clone(e *entrydump.Entry) entrydump.Entry {
	c := *e
	c.Num = slices.Clone(e.Num)
	c.Opt = slices.Clone(e.Opt)
	for i := range c.Opt {
		for k, v := range c.Opt[i].Vectors {
			c.Opt[i].Vectors[k] = slices.Clone(v)
		}
	}
	return c
}

// TestSamples: every record of upstream's own files is read, and written again with the same bytes.
func TestSamples(t *testing.T) {
	t.Parallel()
	records := 0
	for _, server := range []string{"ps_0", "ps_1"} {
		c, err := entrydump.Find(t.Context(), fsx.Local{}, filepath.Join(samples(t), server, "1622716114"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Files) != 20 || len(c.Others) != 0 || len(c.Filters) != 0 {
			t.Fatalf("%d files, others %v, filters %v", len(c.Files), c.Others, c.Filters)
		}
		dims := map[int]int{}
		for _, f := range c.Files {
			if f.Shards != 4 || f.Multi {
				t.Fatalf("%+v", f)
			}
			for shard := range f.Shards {
				raw, err := os.ReadFile(filepath.Join(c.Assets, entrydump.FileName(f.Name, shard, f.Shards)))
				if err != nil {
					t.Fatal(err)
				}
				in := tfrecord.NewReader(strings.NewReader(string(raw)), nil)
				r, err := c.Open(t.Context(), fsx.Local{}, f, shard)
				if err != nil {
					t.Fatal(err)
				}
				for {
					table, e, err := r.Next()
					want, wantErr := in.Next()
					if errors.Is(err, io.EOF) && errors.Is(wantErr, io.EOF) {
						break
					}
					if err != nil || wantErr != nil {
						t.Fatal(err, wantErr)
					}
					records++
					dims[len(e.Num)]++
					if table != f.Name || !e.HasOpt || !e.HasTime {
						t.Errorf("%s: %+v", table, e)
					}
					if got := e.Append(nil); string(got) != string(want) {
						t.Errorf("%s: record is written as\n%x, was\n%x", f.Name, got, want)
					}
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if server == "ps_0" && dims[33] == 0 {
			t.Errorf("rows have the dimensions %v", dims)
		}
	}
	if records < 40 {
		t.Errorf("%d records", records)
	}
}

// full is an entry with every field and a dump of every kind.
func full(rng *rand.Rand, id int64) entrydump.Entry {
	e := entrydump.Entry{ID: id, HasOpt: true, HasTime: true, Time: 1_700_000_000 + id%1000, Count: uint64(id)%7 + 1, Micros: uint32(id) % 1_000_000}
	floats := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = rng.Float32() - 0.5
		}
		return out
	}
	for _, k := range entrydump.Kinds() {
		e.Num = append(e.Num, floats(3)...)
		d := e.Add()
		d.Kind = k
		switch k {
		case entrydump.SGD, entrydump.BatchSoftmax, entrydump.GroupAdagrad:
		case entrydump.FTRL, entrydump.GroupFTRL, entrydump.Adadelta, entrydump.Adam:
			d.Vectors[0], d.Vectors[1] = floats(3), floats(3)
		case entrydump.AMSGrad:
			d.Vectors[0], d.Vectors[1], d.Vectors[2] = floats(3), floats(3), floats(3)
		default:
			d.Vectors[0] = floats(3)
		}
		switch k {
		case entrydump.Adam, entrydump.AMSGrad:
			d.Scalars = [2]float32{0.9, 0.99}
		case entrydump.GroupAdagrad:
			d.Scalars[0] = 0.25
		case entrydump.BatchSoftmax, entrydump.DynamicWDAdagrad:
			d.Step = 1 << 40
		}
	}
	return e
}

func same(a, b entrydump.Entry) bool {
	return string(a.Append(nil)) == string(b.Append(nil))
}

// write writes entries by table into so many shards, one after the other.
func write(t *testing.T, dir string, f entrydump.File, tables []string, entries map[string][]entrydump.Entry) {
	t.Helper()
	var ws []*entrydump.Writer
	for shard := range f.Shards {
		w, err := entrydump.Create(t.Context(), fsx.Local{}, dir, f, shard)
		if err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	for _, table := range tables {
		if f.Multi {
			for _, w := range ws {
				if err := w.Table(table); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range entries[table] {
			if err := ws[i%len(ws)].Write(&entries[table][i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, w := range ws {
		if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoundTrip: what is written is read: every kind of state, many tables in one file, tables without rows, more than one block.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, multi := range []bool{false, true} {
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprintf("multi=%v/shards=%d", multi, shards), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, 2))
				dir := filepath.Join(t.TempDir(), "model.ckpt-12.assets")
				tables := []string{"T"}
				if multi {
					tables = []string{"a", "none", "b"}
				}
				want := map[string][]entrydump.Entry{}
				for k, name := range tables {
					if name == "none" {
						continue
					}
					for i := range 700 {
						want[name] = append(want[name], full(rng, int64(k)<<48|int64(i)))
					}
				}
				want[tables[0]] = append(want[tables[0]], entrydump.Entry{ID: -3, Num: []float32{1}}, entrydump.Entry{ID: math.MinInt64})
				write(t, dir, entrydump.File{Name: "T", Multi: multi, Shards: shards}, tables, want)
				c, err := entrydump.Find(t.Context(), fsx.Local{}, strings.TrimSuffix(dir, ".assets"))
				if err != nil {
					t.Fatal(err)
				}
				if c.Step != 12 || len(c.Files) != 1 || c.Files[0].Multi != multi || c.Files[0].Shards != shards {
					t.Fatalf("%+v", c)
				}
				got := readAll(t, c)
				for name, entries := range want {
					byID := map[int64]entrydump.Entry{}
					for _, e := range got[name] {
						byID[e.ID] = e
					}
					if len(got[name]) != len(entries) {
						t.Errorf("table %s: %d entries, want %d", name, len(got[name]), len(entries))
					}
					for _, e := range entries {
						g := byID[e.ID]
						if !same(g, e) || g.Time != e.Time || g.Count != e.Count || g.Micros != e.Micros || !reflect.DeepEqual(append([]float32{}, g.Num...), append([]float32{}, e.Num...)) {
							t.Fatalf("table %s: got %+v, want %+v", name, g, e)
						}
					}
				}
			})
		}
	}
}

// TestDamage: whatever happens to a file is an error with its name, the place and the reason, and no panic.
func TestDamage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	entries := map[string][]entrydump.Entry{"a": {full(rng, 1), full(rng, 2)}, "b": {full(rng, 3)}}
	for _, tc := range []struct {
		name   string
		multi  bool
		file   string
		break_ func(b []byte) []byte
		want   string
	}{
		{"cut short", false, "T-00000-of-00001", func(b []byte) []byte { return b[:len(b)-1] }, "record 1 at byte"},
		{"bit of the data", false, "T-00000-of-00001", func(b []byte) []byte { b[30] ^= 1; return b }, "record 0 at byte 0: crc mismatch"},
		{"bit of a length", false, "T-00000-of-00001", func(b []byte) []byte { b[0] ^= 1; return b }, "record 0 at byte 0: length crc mismatch"},
		{"no entry", false, "T-00000-of-00001", func([]byte) []byte { return record([]byte{0x10, 0x01}) }, "record 0 at byte 0: EntryDump, field 2"},
		{"no id", false, "T-00000-of-00001", func([]byte) []byte { return record([]byte{0x20, 0x01}) }, "without an id"},
		{"no message", false, "T-00000-of-00001", func([]byte) []byte { return record([]byte{0xff}) }, "record 0 at byte 0"},
		{"block cut short", true, "T-00000-of-00001", func(b []byte) []byte { return b[:len(b)-1] }, "compressed block at byte 0"},
		{"length cut short", true, "T-00000-of-00001", func([]byte) []byte { return []byte{0, 0, 1} }, "compressed block at byte 0: the file ends after 3 of the 4 bytes"},
		{"no snappy", true, "T-00000-of-00001", func(b []byte) []byte { return append([]byte{0, 0, 0, 3}, 0xff, 0xff, 0xff) }, "compressed block at byte 0"},
		{"huge block", true, "T-00000-of-00001", func([]byte) []byte { return []byte{0xff, 0, 0, 0} }, "a block of 4278190080 bytes"},
		{"no data", true, "T-00000-of-00001", func([]byte) []byte { return nil }, `table "a" has 2 more`},
		{"too many said", true, "T.meta-00000-of-00001", func([]byte) []byte { return record([]byte{0x0a, 1, 'a', 0x10, 9}) }, `table "a" has 6 more`},
		{"too few said", true, "T.meta-00000-of-00001", func([]byte) []byte { return record([]byte{0x0a, 1, 'a', 0x10, 2}) }, "has more entries than"},
		{"meta damaged", true, "T.meta-00000-of-00001", func(b []byte) []byte { b[13] ^= 1; return b }, "T.meta-00000-of-00001: record 0 at byte 0: crc mismatch"},
		{"no meta message", true, "T.meta-00000-of-00001", func([]byte) []byte { return record([]byte{0x08, 1}) }, "MultiHashTableMetadata: field 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tables := []string{"a", "b"}
			if !tc.multi {
				tables = tables[:1]
			}
			write(t, dir, entrydump.File{Name: "T", Multi: tc.multi, Shards: 1}, tables, entries)
			path := filepath.Join(dir, tc.file)
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, tc.break_(b), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := entrydump.Find(t.Context(), fsx.Local{}, dir)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Open(t.Context(), fsx.Local{}, c.Files[0], 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			for err == nil {
				_, _, err = r.Next()
			}
			if !errors.Is(err, entrydump.ErrDamaged) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.file) {
				t.Errorf("got %v, want ErrDamaged with %q and %s", err, tc.want, tc.file)
			}
			if _, _, again := r.Next(); !errors.Is(again, err) {
				t.Errorf("the error does not repeat: %v", again)
			}
		})
	}
}

// record is a TFRecord file of one record.
func record(data []byte) []byte {
	var b strings.Builder
	w := tfrecord.NewWriter(&b, nil)
	if err := errors.Join(w.Write(data), w.Close()); err != nil {
		panic(err)
	}
	return []byte(b.String())
}

// TestFind: what a path can mean, and what is said of one that means nothing.
func TestFind(t *testing.T) {
	t.Parallel()
	file := func(t *testing.T, name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		files map[string]string
		path  string
		want  string // the assets folder, or part of the error
		kind  error
	}{
		{"prefix", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": ""}, "model.ckpt-7", "model.ckpt-7.assets", nil},
		{"assets", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": ""}, "model.ckpt-7.assets", "model.ckpt-7.assets", nil},
		{"the only one", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": ""}, ".", "model.ckpt-7.assets", nil},
		{"the newest", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": "", "model.ckpt-8.assets/T-00000-of-00001": "", "checkpoint": "model_checkpoint_path: \"model.ckpt-7\"\nall_model_checkpoint_paths: \"model.ckpt-8\"\n"}, ".", "model.ckpt-7.assets", nil},
		{"copied", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": "", "checkpoint": "model_checkpoint_path: \"/hdfs/gone/model.ckpt-7\"\n"}, ".", "model.ckpt-7.assets", nil},
		{"exported", map[string]string{"assets/T-00000-of-00001": "", "saved_model.pb": ""}, ".", "assets", nil},
		{"tables", map[string]string{"T-00000-of-00001": ""}, ".", ".", nil},
		{"several", map[string]string{"model.ckpt-7.assets/T-00000-of-00001": "", "model.ckpt-8.assets/x": ""}, ".", "has 2 checkpoints", entrydump.ErrNone},
		{"nothing", map[string]string{"x": ""}, ".", "has neither a file checkpoint", entrydump.ErrNone},
		{"nowhere", nil, "gone", "gone", entrydump.ErrNone},
		{"named and gone", map[string]string{"checkpoint": "model_checkpoint_path: \"model.ckpt-7\"\n"}, ".", "there is no folder", entrydump.ErrNone},
		{"no line", map[string]string{"checkpoint": "x"}, ".", "no line model_checkpoint_path", entrydump.ErrDamaged},
		{"a shard is missing", map[string]string{"T-00001-of-00002": ""}, ".", "T-00000-of-00002 is missing", entrydump.ErrDamaged},
		{"of two checkpoints", map[string]string{"T-00000-of-00001": "", "T-00000-of-00002": "", "T-00001-of-00002": ""}, ".", "of 1 and of 2 shards", entrydump.ErrDamaged},
		{"meta of others", map[string]string{"T-00000-of-00001": "", "T.meta-00000-of-00002": "", "T.meta-00001-of-00002": ""}, ".", "T has 1 shards and T.meta 2", entrydump.ErrDamaged},
		{"left behind", map[string]string{"T-00000-of-00001": "", "T-tmp-1234-00000-of-00002": "", "notes.txt": ""}, ".", ".", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tc.files {
				file(t, filepath.Join(dir, name), text)
			}
			c, err := entrydump.Find(t.Context(), fsx.Local{}, filepath.Join(dir, tc.path))
			if tc.kind != nil {
				if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, tc.want); c.Assets != want || len(c.Files) != 1 || c.Files[0].Name != "T" {
				t.Errorf("got %+v, want %s", c, want)
			}
		})
	}
}

// TestFilter: counters are counted; a cell is a signature and four bits of count.
func TestFilter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b strings.Builder
	w := tfrecord.NewWriter(&b, nil)
	meta := []byte{0x08, 2, 0x10, 100, 0x18, 3}                        // failure_count 2, total_size 100, num_elements 3
	packed := []byte{0x08, 0, 0x12, 4, 0x11, 0x00, 0x9f, 0x01}         // cells 0x11, 0, 0x9f
	unpacked := []byte{0x08, 3, 0x10, 0x13, 0x10, 0xa0, 0x0b, 0x08, 3} // cells 0x13, 0x5a0
	if err := errors.Join(w.Write(meta), w.Write(packed), w.Write(unpacked), w.Close()); err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		if err := os.WriteFile(filepath.Join(dir, entrydump.FileName("hash_filter_0", shard, 2)), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := entrydump.Find(t.Context(), fsx.Local{}, dir)
	if err != nil || len(c.Filters) != 1 || len(c.Files) != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	got, err := c.Filter(t.Context(), fsx.Local{}, c.Filters[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := (entrydump.FilterInfo{Splits: 2, Capacity: 200, Counters: 6, Failures: 4, Occurrences: 2 * (1 + 15 + 3)}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, entrydump.FileName("hash_filter_0", 1, 2)), []byte(b.String())[:40], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Filter(t.Context(), fsx.Local{}, c.Filters[0]); !errors.Is(err, entrydump.ErrDamaged) || !strings.Contains(err.Error(), "00001-of-00002") {
		t.Errorf("of a damaged one: %v", err)
	}
}

// tensorflow is an independent reader and writer: TensorFlow's own records and snappy, and a decoder of the message written for this test
// after embedding_hash_table.proto.
const tensorflow = `
import json, struct, sys
from tensorflow.python.lib.io import _pywrap_record_io as rio

def varint(b, i):
    n = s = 0
    while True:
        n |= (b[i] & 127) << s
        s += 7
        i += 1
        if b[i-1] < 128:
            return n, i

def message(b):
    out, i = [], 0
    while i < len(b):
        tag, i = varint(b, i)
        if tag & 7 == 0:
            v, i = varint(b, i)
        elif tag & 7 == 1:
            v, i = b[i:i+8], i + 8
        elif tag & 7 == 5:
            v, i = b[i:i+4], i + 4
        else:
            n, i = varint(b, i)
            v, i = b[i:i+n], i + n
        out.append((tag >> 3, v))
    return out

def entry(b):
    e = {"id": None, "num": [], "opt": [], "time": None}
    for f, v in message(b):
        if f == 1: e["id"] = struct.unpack("<q", v)[0]
        if f == 2: e["num"].append(struct.unpack("<I", v)[0])
        if f == 4: e["time"] = v
        if f == 3:
            for _, d in message(v):
                for kind, s in message(d):
                    e["opt"].append([kind, [[g, struct.unpack("<I", w)[0] if isinstance(w, bytes) else w] for g, w in message(s)]])
    return e

def read(path, compression):
    return [bytes(r) for r in rio.RecordIterator(path, compression)]

mode, path = sys.argv[1], sys.argv[2]
if mode == "read":
    print(json.dumps([entry(r) for r in read(path, sys.argv[3])]))
if mode == "meta":
    print(json.dumps([[v.decode() if isinstance(v, bytes) else v for _, v in message(r)] for r in read(path, "")]))
if mode == "pack":
    w = rio.RecordWriter(sys.argv[3], rio.RecordWriterOptions("SNAPPY"))
    for r in read(path, ""):
        w.write(r)
    w.close()
`

// run runs the script.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	return readers.Run(t, tensorflow, args...)
}

// TestTensorFlowReads: TensorFlow reads what is written, compressed or not, with the same numbers; and what it compresses is read here.
func TestTensorFlowReads(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	want := map[string][]entrydump.Entry{}
	for i := range 900 {
		want["a"] = append(want["a"], full(rng, int64(i)))
	}
	want["b"] = append(want["b"], full(rng, -7))
	dir := t.TempDir()
	write(t, dir, entrydump.File{Name: "M", Multi: true, Shards: 1}, []string{"a", "empty", "b"}, want)
	write(t, dir, entrydump.File{Name: "S", Shards: 1}, []string{"a", "b"}, want)
	all := append(slices.Clone(want["a"]), want["b"]...)
	type read struct {
		ID   int64
		Num  []uint32
		Opt  []json.RawMessage
		Time int64
	}
	for _, args := range [][]string{{"read", filepath.Join(dir, "M-00000-of-00001"), "SNAPPY"}, {"read", filepath.Join(dir, "S-00000-of-00001"), ""}} {
		var got []read
		if err := json.Unmarshal(run(t, args...), &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(all) {
			t.Fatalf("%v: %d entries, want %d", args, len(got), len(all))
		}
		for i, e := range all {
			if got[i].ID != e.ID || got[i].Time != e.Time || len(got[i].Opt) != len(e.Opt) || len(got[i].Num) != len(e.Num) {
				t.Fatalf("%v: entry %d is %+v, want %+v", args, i, got[i], e)
			}
			for k, v := range e.Num {
				if got[i].Num[k] != math.Float32bits(v) {
					t.Fatalf("%v: entry %d, number %d", args, i, k)
				}
			}
			for k := range e.Opt {
				if text := string(got[i].Opt[k]); !strings.HasPrefix(text, fmt.Sprintf("[%d,", e.Opt[k].Kind)) {
					t.Fatalf("dump %d is %s, want kind %s", k, text, e.Opt[k].Kind)
				}
			}
		}
	}
	if got := strings.TrimSpace(string(run(t, "meta", filepath.Join(dir, "M.meta-00000-of-00001")))); got != `[["a", 900], ["empty", 0], ["b", 1]]` {
		t.Errorf("TensorFlow reads of what is in the file: %s", got)
	}
	run(t, "pack", filepath.Join(dir, "S-00000-of-00001"), filepath.Join(dir, "M-00000-of-00001"))
	c, err := entrydump.Find(t.Context(), fsx.Local{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Files = slices.DeleteFunc(c.Files, func(f entrydump.File) bool { return !f.Multi })
	got := readAll(t, c)
	for name := range want {
		if len(got[name]) != len(want[name]) {
			t.Fatalf("of what TensorFlow compressed, table %s has %d entries", name, len(got[name]))
		}
		for i := range want[name] {
			if !same(got[name][i], want[name][i]) {
				t.Fatalf("of what TensorFlow compressed, entry %d of table %s differs", i, name)
			}
		}
	}
}

// disk is a file system of one file.
type disk struct{ files map[string][]byte }

func (d disk) Open(_ context.Context, name string) (fsx.File, error) {
	b, ok := d.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return memFile{strings.NewReader(string(b)), int64(len(b))}, nil
}

func (disk) Stat(context.Context, string) (fsx.Info, error)     { return fsx.Info{}, fs.ErrNotExist }
func (disk) Create(context.Context, string) (fsx.Writer, error) { return nil, fs.ErrPermission }
func (disk) List(context.Context, string) ([]fsx.Info, error)   { return nil, fs.ErrNotExist }
func (disk) Remove(context.Context, string) error               { return fs.ErrPermission }

type memFile struct {
	*strings.Reader
	size int64
}

func (f memFile) Info() fsx.Info { return fsx.Info{Size: f.size} }
func (memFile) Close() error     { return nil }

// FuzzReader: whatever is in a file, reading ends without a panic, and what is read can be written and read again.
func FuzzReader(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	e := full(rng, 5)
	f.Add(record(e.Append(nil)), []byte(nil), false)
	f.Add([]byte{0, 0, 0, 1, 0}, record([]byte{0x0a, 1, 'a', 0x10, 2}), true)
	f.Add([]byte(nil), record([]byte{0x0a, 1, 'a'}), true)
	f.Fuzz(func(t *testing.T, data, meta []byte, multi bool) {
		c := &entrydump.Checkpoint{}
		file := entrydump.File{Name: "T", Shards: 1, Multi: multi}
		in := disk{map[string][]byte{"T-00000-of-00001": data, "T.meta-00000-of-00001": meta}}
		r, err := c.Open(t.Context(), in, file, 0)
		if err != nil {
			t.Fatal(err)
		}
		for {
			_, e, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, entrydump.ErrDamaged) {
					t.Errorf("%v is not of what is damaged", err)
				}
				break
			}
			var again entrydump.Entry
			if err := again.Decode(e.Append(nil)); err != nil || !same(*e, again) {
				t.Errorf("%v: %+v is read again as %+v", err, e, again)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDecode: a message that is read is written as one that is read the same.
func FuzzDecode(f *testing.F) {
	e := full(rand.New(rand.NewPCG(9, 10)), 5)
	f.Add(e.Append(nil))
	f.Add([]byte{9, 1, 2, 3, 4, 5, 6, 7, 8, 0x12, 4, 0, 0, 0x80, 0x3f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again entrydump.Entry
		if e.Decode(b) != nil {
			return
		}
		if err := again.Decode(e.Append(nil)); err != nil || !same(e, again) {
			t.Errorf("%v: %+v is read again as %+v", err, e, again)
		}
	})
}
