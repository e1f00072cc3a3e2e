package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// Snapshot is an open snapshot whose checksums are right, those of its bases included. Its methods may overlap.
type Snapshot struct {
	info        *Info
	weightsOnly bool
	files       []fsx.File // of info.Files
	// bases are what an incremental snapshot adds to, the newest first. The last is whole, or one that adds to what the reader has.
	bases []*Snapshot
	added bool
}

// ReadInfo returns the manifest of a snapshot without looking at its data. Errors: [ErrCorrupt], [ErrVersion]; what has no
// manifest is fs.ErrNotExist too.
func ReadInfo(path string) (*Info, error) { return ReadInfoIn(fsx.Local{}, path) }

// ReadInfoIn is [ReadInfo] in another store.
func ReadInfoIn(f fsx.FS, path string) (*Info, error) {
	b, err := get(f, filepath.Join(path, ManifestName), maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("snapshot: %s: %w", path, &missingError{err})
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s: %w", path, unreadable(err))
	}
	info, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s: %w", path, err)
	}
	info.Path = path
	return info, nil
}

// OpenOptions say what of a snapshot is opened. The zero value is all of one on the machine's disk.
type OpenOptions struct {
	// FS is where it lies; nil is [fsx.Local].
	FS fsx.FS
	// Shard, of Shards, is whose files alone are opened, when that many wrote the snapshot; of one that another number wrote
	// every file is that may have something of the shard's. Shards 0 stands for all.
	Shard, Shards int
	// Rows, if not nil, says of which shards, of how many wrote the snapshot, files of rows are opened, in place of Shard.
	Rows func(shard, of int) bool
	// WeightsOnly leaves the optimizers' state alone: it is neither opened nor read.
	WeightsOnly bool
	// DenseOnly leaves the rows alone, too: there are none then.
	DenseOnly bool
	// Since, if not 0, is a snapshot that the reader has all rows of. Of one that adds to it, perhaps by way of others, only what was added is opened, and
	// read by [Snapshot.Changes]; [Snapshot.Added] says whether it is one.
	Since uint64
	// Threads is how many files are verified at the same time; 0: one.
	Threads int
}

// Open opens a snapshot, with the bases of an incremental one, and verifies every file against the manifest before anything of it is used, which takes as long as
// reading it; ctx bounds that alone. Errors: [ErrCorrupt], [ErrVersion], both name the file; the context's.
func Open(ctx context.Context, path string) (*Snapshot, error) {
	return OpenWith(ctx, path, OpenOptions{})
}

// OpenWith is [Open] with options.
func OpenWith(ctx context.Context, path string, o OpenOptions) (*Snapshot, error) {
	o.FS = disk(o.FS)
	info, err := ReadInfoIn(o.FS, path)
	if err != nil {
		return nil, err
	}
	return openChain(ctx, info, opening{fs: o.FS, since: o.Since, weightsOnly: o.WeightsOnly, threads: o.Threads, which: func(f FileInfo) bool {
		return o.wants(f, info.Shards) && (!o.WeightsOnly || !f.Kind.state()) && (!o.DenseOnly || f.Table < 0)
	}})
}

// wants reports whether a file of a snapshot that so many shards wrote may have something of the shard's. Rows lie by ranges of their hashes.
func (o *OpenOptions) wants(f FileInfo, parts int) bool {
	switch f.Kind {
	case KindRows, KindState, KindRemoved:
		if o.Rows != nil {
			return o.Rows(f.Shard, parts)
		}
		return o.Shards == 0 || overlap(f.Shard, parts, o.Shard, o.Shards)
	}
	return parts != o.Shards || f.Shard == o.Shard
}

// overlap reports whether shard a, of n, may have rows that shard b, of m, had: whether the a-th of n equal ranges meets the b-th of m.
func overlap(a, n, b, m int) bool { return a*m < (b+1)*n && b*n < (a+1)*m }

// open opens a file of the snapshot at path and verifies it, unless that was done. The file is the caller's to close, also when it is not as it should be; nil: it could not be opened.
func open(ctx context.Context, in fsx.FS, path string, f FileInfo, verified bool) (fsx.File, error) {
	src, err := in.Open(ctx, filepath.Join(path, f.Name))
	if err != nil {
		return nil, unreadable(err)
	}
	if src.Info().Size != f.Bytes {
		return src, fmt.Errorf("%d bytes of %d: %w", src.Info().Size, f.Bytes, ErrCorrupt)
	}
	if verified {
		return src, nil
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, bounded{ctx, io.NewSectionReader(src, 0, f.Bytes)}, make([]byte, 1<<20))
	switch sum := h.Sum(nil); {
	case ctx.Err() != nil:
		return src, context.Cause(ctx) // says nothing of the file
	case err != nil:
		return src, unreadable(err)
	case n != f.Bytes:
		return src, fmt.Errorf("%d bytes of %d can be read: %w", n, f.Bytes, ErrCorrupt)
	case hex.EncodeToString(sum) != f.SHA256:
		return src, fmt.Errorf("bytes 0 to %d: checksum mismatch (want %s, got %x): %w", f.Bytes, f.SHA256, sum, ErrCorrupt)
	}
	return src, nil
}

// bounded reads until its context ends.
type bounded struct {
	ctx  context.Context
	from io.Reader
}

// Read implements [io.Reader].
func (b bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.from.Read(p)
}

// unreadable is an error of reading a file as callers know it.
func unreadable(err error) error {
	if !fsx.Damage(err) || errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// missingError is what has no manifest: a folder that was never finished, is being removed, or is not there. It is an [ErrCorrupt] that is not said to be damaged.
type missingError struct{ err error }

// Error says what is missing.
func (e *missingError) Error() string {
	return "no snapshot, or an incomplete one: " + ManifestName + ", which is written last, is not there"
}

// Unwrap returns what the error is to callers, and the file system's own.
func (e *missingError) Unwrap() []error { return []error{ErrCorrupt, e.err} }

// Info returns the manifest. It belongs to the snapshot.
func (s *Snapshot) Info() *Info { return s.info }

// Added reports whether only what was added to [OpenOptions].Since is open: its rows are read by Changes, and not by Rows.
func (s *Snapshot) Added() bool { return s.added }

// Close closes the files.
func (s *Snapshot) Close() error {
	var errs []error
	for _, f := range s.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, b := range s.bases {
		errs = append(errs, b.Close())
	}
	s.files, s.bases = nil, nil
	return errors.Join(errs...)
}

// find returns the file of a kind, table and shard, nil when there is none.
func (s *Snapshot) find(kind Kind, tbl, shard int) (fsx.File, FileInfo) {
	for i, f := range s.info.Files {
		if f.Kind == kind && f.Table == tbl && f.Shard == shard {
			return s.files[i], f
		}
	}
	return nil, FileInfo{}
}

func (s *Snapshot) named(f FileInfo, err error) error {
	return fmt.Errorf("snapshot: %s: %s: %w", s.info.Path, f.Name, err)
}

// Rows calls each with the rows of a table, at most 64Ki at a time; they are valid during the call. The rows of one shard
// come in the order of [table.Hash]. Of a snapshot that was opened for its weights only, the rows have no state. Errors:
// [ErrCorrupt], and what each returns.
func (s *Snapshot) Rows(tbl int, each func(*table.Rows) error) error {
	for shard := range s.info.Shards {
		if err := s.RowsOf(tbl, shard, each); err != nil {
			return err
		}
	}
	return nil
}

// Changes calls each with what was added to the table of [OpenOptions].Since: the rows that were made or changed, as they are now, and the fids of those
// that are gone, a few thousand at a time and each once. They are valid during the call. Errors: [ErrCorrupt], and what each returns.
func (s *Snapshot) Changes(tbl int, each func(rows *table.Rows, removed []int64) error) error {
	for shard := range s.info.Shards {
		m, err := newMerged(append([]*Snapshot{s}, s.bases...), tbl, shard, true)
		for err == nil {
			var rows *table.Rows
			if rows, _, err = m.next(); err == nil {
				err = each(rows, m.gone)
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// RowsOf is [Snapshot.Rows] for what one shard wrote.
func (s *Snapshot) RowsOf(tbl, shard int, each func(*table.Rows) error) error {
	r, err := s.reader(tbl, shard)
	if r == nil || err != nil {
		return err
	}
	return r.All(each)
}

// Waiting is [Snapshot.Rows] for what counts fids of a table that have no row, of a kind that [Counted] gives: times and counts. Of a snapshot that was
// opened for its weights only there are none.
func (s *Snapshot) Waiting(tbl int, kind Kind, each func(*table.Rows) error) error {
	for shard := range s.info.Shards {
		if err := s.WaitingOf(tbl, shard, kind, each); err != nil {
			return err
		}
	}
	return nil
}

// WaitingOf is [Snapshot.Waiting] for what one shard wrote.
func (s *Snapshot) WaitingOf(tbl, shard int, kind Kind, each func(*table.Rows) error) error {
	file, f := s.find(kind, tbl, shard)
	if file == nil {
		return nil
	}
	files, err := openRowFiles(file, nil, waitingTable(s.info.Tables[tbl]))
	if err != nil {
		return s.named(f, err)
	}
	return (&RowReader{of: s, file: f, rows: files, total: f.Rows}).All(each)
}

// digestWaiting adds what counts fids of a table that have no row to a digest, until next fails.
func (s *Snapshot) digestWaiting(tbl int, d *Digest, next func() error) error {
	for _, kind := range countedKinds {
		err := s.Waiting(tbl, kind, func(r *table.Rows) error {
			d.Waiting(kind, s.info.Tables[tbl].Name, r)
			return next()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// All calls each with all rows that are left, as Next returns them, while the next ones are being read. Errors: as Next, and what each returns, with the name of the file.
func (r *RowReader) All(each func(*table.Rows) error) error {
	type read struct {
		rows table.Rows
		err  error
	}
	next, spare, stop := make(chan read), make(chan table.Rows, 1), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(stop)
	reading.Go(func() {
		for err := error(nil); err == nil; {
			var got read
			if _, _, err = r.Next(); err == nil {
				select {
				case got.rows = <-spare:
				default:
				}
				got.rows = r.rows.swap(got.rows)
			}
			got.err = err
			select {
			case next <- got:
			case <-stop:
				return
			}
		}
	})
	for {
		got := <-next
		switch {
		case errors.Is(got.err, io.EOF):
			return nil
		case got.err != nil:
			return got.err
		}
		if err := each(&got.rows); err != nil {
			return r.of.named(r.file, err)
		}
		select {
		case spare <- got.rows:
		default:
		}
	}
}

// Tensors returns the dense tensors, without state where the snapshot was opened for its weights only. Errors: [ErrCorrupt].
func (s *Snapshot) Tensors() ([]Tensor, error) {
	var out []Tensor
	for shard := range s.info.Shards {
		t, err := s.tensorsOf(shard)
		if err != nil {
			return nil, err
		}
		out = append(out, t...)
	}
	return out, nil
}

// tensorsOf returns those that one shard wrote.
func (s *Snapshot) tensorsOf(shard int) ([]Tensor, error) {
	weights, f := s.find(KindDense, -1, shard)
	if weights == nil {
		return nil, nil
	}
	t, err := readTensors(weights)
	if err == nil && int64(len(t)) != f.Rows {
		err = fmt.Errorf("%d tensors of %d: %w", len(t), f.Rows, ErrCorrupt)
	}
	if err != nil {
		return nil, s.named(f, err)
	}
	if !s.weightsOnly {
		state, f := s.find(KindDenseState, -1, shard)
		if err := readStates(state, t); err != nil {
			return nil, s.named(f, err)
		}
	}
	return t, nil
}

// readStates reads the state of tensors.
func readStates(src fsx.File, to []Tensor) error {
	if src == nil {
		return fmt.Errorf("no state of %d tensors: %w", len(to), ErrCorrupt)
	}
	states, err := readTensors(src)
	if err == nil && len(states) != len(to) {
		err = fmt.Errorf("the state of %d tensors of %d: %w", len(states), len(to), ErrCorrupt)
	}
	if err != nil {
		return err
	}
	for i, st := range states {
		if st.Name != to[i].Name {
			return fmt.Errorf("state of tensor %.80q instead of %.80q: %w", st.Name, to[i].Name, ErrCorrupt)
		}
		to[i].State = st.Weights
	}
	return nil
}

// Digest computes the digest of the contents again; a whole snapshot gives [Info].Digest, and one that was opened for its
// weights only has none. Errors: [ErrCorrupt].
func (s *Snapshot) Digest() (string, error) {
	if s.weightsOnly {
		return "", fmt.Errorf("snapshot: %s: opened for its weights only, which have no digest: %w", s.info.Path, errors.ErrUnsupported)
	}
	var d Digest
	for i, t := range s.info.Tables {
		err := s.Rows(i, func(r *table.Rows) error {
			d.Rows(t.Name, t.Dim(), t.StateDim(), r)
			return nil
		})
		if err == nil {
			err = s.digestWaiting(i, &d, func() error { return nil })
		}
		if err != nil {
			return "", err
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		return "", err
	}
	for _, t := range tensors {
		d.Dense(t)
	}
	for source, splits := range s.info.Positions {
		for split, p := range splits {
			d.Split(source, split, p)
		}
	}
	for key, value := range s.info.State {
		d.State(key, value)
	}
	return d.String(), nil
}
