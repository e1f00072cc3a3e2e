package metricsink

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
)

// ErrFile means that a file of predictions is damaged, or is none. Evaluate again.
var ErrFile = errors.New("no file of predictions")

// fileBytes is how large a file gets before the next is begun, and maxFile the largest that is read: a batch may have more.
const (
	fileBytes = 16 << 20
	maxFile   = 1 << 31
	suffix    = ".scores"
)

// NewIn makes a sink whose writers write what they take to files of a folder, for a process that measures it elsewhere ([Sink.Gather]).
// What Flush has returned for is durable. A split that is read again, because its worker has died, comes twice.
//
// A file is gobs of batches with their places, and at its end the crc32c of all that in 4 bytes, big endian.
func NewIn[T Scorer](files fsx.FS, folder string) *Sink[T] {
	return &Sink[T]{files: files, folder: folder}
}

// Gather adds what files of a folder hold. It comes after [Sink.Identify], so that what comes twice counts once. Errors: [ErrFile], and
// those of files.
func (s *Sink[T]) Gather(ctx context.Context, files fsx.FS, folder string) error {
	list, err := files.List(ctx, folder)
	if err != nil {
		return fmt.Errorf("metricsink: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range list {
		if f.Dir || !strings.HasSuffix(f.Name, suffix) {
			continue
		}
		path := filepath.Join(folder, f.Name)
		b, err := fsx.ReadFile(ctx, files, path, maxFile)
		if err != nil {
			return fmt.Errorf("metricsink: %w", err)
		}
		if err := decode(b, func(p *placed) error { return s.add(p) }); err != nil {
			return fmt.Errorf("metricsink: %s: %w", path, err)
		}
	}
	return nil
}

// add adds a batch of the heads and keys of those before.
func (s *Sink[T]) add(p *placed) error {
	if have := s.scores.Batch(); have.Rows > 0 {
		same := len(have.Heads) == len(p.Batch.Heads) && s.scores.Keys() == len(p.Batch.Keys)
		for i := 0; same && i < len(have.Heads); i++ {
			same = have.Heads[i].Width == p.Batch.Heads[i].Width && have.Heads[i].NumLabels == p.Batch.Heads[i].NumLabels
		}
		if !same {
			return fmt.Errorf("a batch has other heads or keys than the first: %w", ErrFile)
		}
	}
	s.scores.Add(p.Place, &p.Batch)
	return nil
}

// placed is what a file has of a batch.
type placed struct {
	Place metric.Place
	Batch score.Batch
}

// filer writes files.
type filer[T Scorer] struct {
	s    *Sink[T]
	file bytes.Buffer // the one at work
	gobs *gob.Encoder // into it; nil: it is empty
}

var _ pipeline.Resumer = (*filer[Scorer])(nil)

// Resume implements [pipeline.Resumer]: a split that is read again begins.
func (w *filer[T]) Resume(context.Context, string, []pipeline.Split) (map[string]pipeline.Progress, error) {
	return nil, nil
}

// Write implements [pipeline.Writer].
func (w *filer[T]) Write(ctx context.Context, e T) error {
	defer e.Release()
	if e.Scores().Rows == 0 {
		return nil
	}
	if w.gobs == nil {
		w.gobs = gob.NewEncoder(&w.file)
	}
	if err := w.gobs.Encode(placed{placeOf(e), *e.Scores()}); err != nil {
		return fmt.Errorf("metricsink: %w", err)
	}
	if w.file.Len() < fileBytes {
		return nil
	}
	return w.Flush(ctx)
}

// Flush implements [pipeline.Writer].
func (w *filer[T]) Flush(ctx context.Context) error {
	if w.gobs == nil {
		return nil
	}
	sum := crc32.Checksum(w.file.Bytes(), crc32.MakeTable(crc32.Castagnoli))
	w.file.Write(binary.BigEndian.AppendUint32(nil, sum))
	if err := fsx.WriteFile(ctx, w.s.files, filepath.Join(w.s.folder, rand.Text()+suffix), w.file.Bytes()); err != nil {
		return fmt.Errorf("metricsink: %w", err)
	}
	w.file.Reset()
	w.gobs = nil
	return nil
}

// Close implements [pipeline.Writer].
func (w *filer[T]) Close() error { return nil }

// decode calls f with each batch of a file. Errors: [ErrFile], and those of f.
func decode(file []byte, f func(*placed) error) error {
	at := len(file) - 4
	if at < 0 || binary.BigEndian.Uint32(file[at:]) != crc32.Checksum(file[:at], crc32.MakeTable(crc32.Castagnoli)) {
		return fmt.Errorf("%d bytes, whose checksum does not fit: %w", len(file), ErrFile)
	}
	gobs := gob.NewDecoder(bytes.NewReader(file[:at]))
	for {
		var p placed
		switch err := gobs.Decode(&p); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", err, ErrFile)
		}
		if !p.whole() {
			return fmt.Errorf("a batch of %d rows whose columns do not fit: %w", p.Batch.Rows, ErrFile)
		}
		if err := f(&p); err != nil {
			return err
		}
	}
}

// whole reports whether the columns have the lengths that they should have.
func (p *placed) whole() bool {
	b := &p.Batch
	of := func(n, width int) bool { return width > 0 && n/width == b.Rows && n%width == 0 }
	if b.Rows < 1 || p.Place.Positions != nil && len(p.Place.Positions) != b.Rows || b.Weights != nil && len(b.Weights) != b.Rows || len(b.Heads) == 0 {
		return false
	}
	for _, h := range b.Heads {
		if !of(len(h.Predictions), h.Width) || !of(len(h.Labels), h.NumLabels) || h.Mask != nil && len(h.Mask) != b.Rows {
			return false
		}
	}
	for _, k := range b.Keys {
		if len(k.Offsets) != b.Rows+1 || k.Offsets[0] < 0 || int(k.Offsets[b.Rows]) > len(k.Bytes) {
			return false
		}
		for i := range b.Rows {
			if k.Offsets[i] > k.Offsets[i+1] {
				return false
			}
		}
	}
	return true
}
