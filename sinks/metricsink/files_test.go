package metricsink_test

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/metricsink"
)

// TestFiles: what writers in other processes have flushed is what a sink of one process has, each example once, and what they
// have not flushed is not there.
func TestFiles(t *testing.T) {
	t.Parallel()
	var released atomic.Int64
	nan := float32(math.NaN())
	elements := func() []*scored {
		return []*scored{
			{0, []float32{.1, nan}, []float32{0, 1}, nil, &released},
			{2, nil, nil, nil, &released},
			{2, []float32{.3}, []float32{1}, []float32{0}, &released},
			{3, []float32{.4}, []float32{0}, nil, &released},
		}
	}
	write := func(sink *metricsink.Sink[*scored], flush bool, from int) {
		w, err := sink.Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements()[from:] {
			if err := w.Write(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if flush {
			for range 2 {
				if err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	here := metricsink.New[*scored]()
	write(here, true, 0)
	folder := filepath.Join(t.TempDir(), "a", "b")
	for _, from := range []int{2, 0, 3} { // a split that is read again
		write(metricsink.NewIn[*scored](fsx.Local{}, folder), true, from)
	}
	write(metricsink.NewIn[*scored](fsx.Local{}, folder), false, 0)
	there := metricsink.New[*scored]()
	there.Identify()
	if err := there.Gather(t.Context(), fsx.Local{}, folder); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(here.Scores().Batch(), there.Scores().Batch(), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-here +there):\n%s", diff)
	}
	if n := len(elements()); int(released.Load()) != 2*n+2+1+n {
		t.Errorf("%d elements are released", released.Load())
	}

	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	path := filepath.Join(folder, files[0].Name())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{nil, whole[:len(whole)-1], append([]byte{1}, whole...), bytes.Replace(whole, whole[40:41], []byte{whole[40] ^ 1}, 1)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		sink := metricsink.New[*scored]()
		sink.Identify()
		if err := sink.Gather(t.Context(), fsx.Local{}, folder); !errors.Is(err, metricsink.ErrFile) {
			t.Errorf("%d bytes of %d: %v", len(damaged), len(whole), err)
		}
	}
	if err := metricsink.New[*scored]().Gather(t.Context(), fsx.Local{}, folder+"-no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
}

// sealed is a file of batches, which need not fit, with the checksum of what it is.
func sealed(tb testing.TB, batches ...score.Batch) []byte {
	tb.Helper()
	var b bytes.Buffer
	gobs := gob.NewEncoder(&b)
	for _, batch := range batches {
		if err := gobs.Encode(struct {
			Place metric.Place
			Batch score.Batch
		}{metric.Place{Split: "s"}, batch}); err != nil {
			tb.Fatal(err)
		}
	}
	return seal(b.Bytes())
}

func seal(b []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func heads(predictions ...float32) []score.Head {
	return []score.Head{{Width: 1, NumLabels: 1, Predictions: predictions, Labels: predictions}}
}

// TestFilesThatDoNotFit: batches whose columns have other lengths, and batches of other models, are errors.
func TestFilesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, batches := range map[string][]score.Batch{
		"no rows":     {{Heads: heads()}},
		"no heads":    {{Rows: 1}},
		"predictions": {{Rows: 2, Heads: heads(1)}},
		"weights":     {{Rows: 1, Heads: heads(1), Weights: []float32{1, 2}}},
		"mask":        {{Rows: 1, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: []float32{1}, Labels: []float32{1}, Mask: []bool{true, true}}}}},
		"width":       {{Rows: 1, Heads: []score.Head{{Width: -1, NumLabels: 1, Predictions: []float32{1}, Labels: []float32{1}}}}},
		"offsets":     {{Rows: 1, Heads: heads(1), Keys: []score.Key{{Offsets: []int32{0, 2}, Bytes: []byte("a")}}}},
		"backwards":   {{Rows: 2, Heads: heads(1, 2), Keys: []score.Key{{Offsets: []int32{0, 5, 1}, Bytes: []byte("a")}}}},
		"other keys":  {{Rows: 1, Heads: heads(1)}, {Rows: 1, Heads: heads(1), Keys: []score.Key{{Offsets: []int32{0, 1}, Bytes: []byte("a")}}}},
		"other heads": {{Rows: 1, Heads: heads(1)}, {Rows: 1, Heads: append(heads(1), heads(2)...)}},
	} {
		if err := gather(t, sealed(t, batches...)); !errors.Is(err, metricsink.ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := gather(t, sealed(t, score.Batch{Rows: 1, Heads: heads(1)})); err != nil {
		t.Error(err)
	}
}

func gather(tb testing.TB, file []byte) error {
	tb.Helper()
	folder := tb.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "f.scores"), file, 0o600); err != nil {
		tb.Fatal(err)
	}
	sink := metricsink.New[*scored]()
	sink.Identify()
	err := sink.Gather(tb.Context(), fsx.Local{}, folder)
	sink.Scores()
	return err
}

// FuzzFile gathers files whose checksum fits and whose contents need not.
func FuzzFile(f *testing.F) {
	for _, batches := range [][]score.Batch{nil, {{Rows: 1, Heads: heads(1)}}, {{Rows: 2, Heads: heads(1, 2), Weights: []float32{1, 2}, Keys: []score.Key{{Offsets: []int32{0, 1, 1}, Bytes: []byte("a")}}}}} {
		file := sealed(f, batches...)
		f.Add(file[:len(file)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := gather(t, seal(b)); err != nil && !errors.Is(err, metricsink.ErrFile) {
			t.Errorf("error %v", err)
		}
	})
}
