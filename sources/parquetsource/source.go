package parquetsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// Source describes columns of Parquet files. Its methods may be called from several goroutines at once.
type Source struct {
	opts   Options
	files  *filesplit.Files
	schema *arrow.Schema

	mu struct {
		sync.Mutex
		footers map[string]footer // by path
		// unfinished are files without a footer that were logged, with 1 more than their size.
		unfinished map[string]int64
		// buffers are those of row groups that have been read, for the next ones, whose pages are probably alike; no
		// more than one row group needs.
		buffers []*pqfile.Buffers
		// scratches are those of readers that have ended; no more than one is kept.
		scratches []*pqfile.Scratch
	}
}

// footer is a file's footer as it was when the file had this size and time.
type footer struct {
	size int64
	time time.Time
	meta *pqfile.Meta
}

// keepFooters bounds the footers kept, for the row groups of a file are opened one after another.
const keepFooters = 64

var _ pipeline.Source[*pipeline.Batch] = (*Source)(nil)

// New describes a source without touching a file. What is stored is read as what is asked:
//
//	stored                                   readable as
//	INT32, INT64 (signed or unsigned)        int64 (the bits of 64-bit unsigned ones), float32, float64
//	INT96 (times)                            int64 (nanoseconds since 1970; what does not fit, the nearest that does), float32, float64
//	FLOAT, DOUBLE                            float32, float64
//	BOOLEAN                                  bool, int64, float32, float64 (0 and 1)
//	BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY         binary, string (not checked to be UTF-8)
//	a list of one of these                   list of one of these
//	lists of lists, of any depth             the same lists of lists
//	integers, BOOLEAN and byte arrays        [IDs]
//
// Dates, times and decimals without a fraction are read as the integers that they are stored as. Columns are nullable
// whatever the caller's schema says. The batches have the columns in the order asked, and [pipeline.ColPosition] and
// [pipeline.ColBegin] after them, and [pipeline.ColDraw] where it is asked for. Errors: those of [Options.Validate].
func New(opts Options) (*Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.WithDefaults()
	var fields []arrow.Field
	for _, f := range opts.Columns.Fields() {
		f.Nullable = true
		fields = append(fields, f)
	}
	places := pipeline.WithBegin(arrow.NewSchema([]arrow.Field{{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}}, nil))
	fields = append(fields, places.Fields()...)
	if opts.Draw {
		fields = append(fields, arrow.Field{Name: pipeline.ColDraw, Type: arrow.PrimitiveTypes.Int64})
	}
	known := make(map[string]string, len(opts.Known))
	for split, id := range opts.Known {
		if file, _, ok := cutName(split); ok {
			known[file], _, _ = strings.Cut(id, "#")
		}
	}
	seen := map[string]string{}
	for split, id := range opts.Seen { // of row groups that are known for long and not
		if file, _, ok := cutName(split); ok {
			seen[file] = filesplit.Larger(seen[file], id)
		}
	}
	s := &Source{opts: opts, files: filesplit.NewFiles(opts.FS, opts.Files, known, seen, nil, opts.InOrder), schema: arrow.NewSchema(fields, nil)}
	s.mu.footers, s.mu.unfinished = map[string]footer{}, map[string]int64{}
	return s, nil
}

// Schema implements [pipeline.Source].
func (s *Source) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source]: files end.
func (s *Source) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source) String() string { return "parquet " + strings.Join(s.opts.Files, " ") }

// Fingerprint implements [pipeline.Source]: everything but the size of batches and where the files lie.
func (s *Source) Fingerprint() string {
	return pipeline.Fingerprint("parquet", s.opts, "BatchRows", "Known", "Seen", "FS", "Log")
}

// Splits reads the footers of all files and lists their row groups, of a file without any an empty one. A file whose footer cannot be read is listed as one
// split, whose reader reports it to the bad row policy. A file that ends before its footer does is not there yet and left out,
// unless [Options].Complete is set. Errors: [pipeline.ErrUnavailable] when no file is there yet, [pipeline.ErrConfig] for patterns without a file and for
// columns that a file lacks or has in another type, all at once; [pipeline.ErrUnavailable] when files cannot be read.
func (s *Source) Splits(ctx context.Context) ([]pipeline.Split, error) {
	files, err := s.files.List(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	var splits []pipeline.Split
	var faults []error
	var alike sameIDs
	var unfinished []string
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		is, err := s.unfinished(ctx, f)
		if err != nil {
			return nil, s.explain(err)
		}
		if is {
			unfinished = append(unfinished, f.Path)
			continue
		}
		meta, err := s.footer(ctx, f)
		switch {
		case isBad(err):
			splits = append(splits, pipeline.Split{Name: name(f.Name, 0), Identity: f.Identity + "#0", Seen: f.Seen, End: pipeline.NoPosition})
			continue
		case err != nil:
			return nil, s.explain(err)
		}
		leaves, err := resolve(f.Path, meta.Root, s.opts.Columns)
		if err == nil {
			err = alike.check(f.Path, s.opts.Columns.Fields(), leaves)
		}
		if err != nil {
			if faults = append(faults, err); len(faults) == 10 {
				break // the other files are probably like these
			}
		}
		if len(meta.RowGroups) == 0 { // a file without rows is one, and no mistake
			splits = append(splits, pipeline.Split{Name: name(f.Name, 0), Identity: f.Identity + "#0", Seen: f.Seen})
		}
		for i, g := range meta.RowGroups {
			splits = append(splits, pipeline.Split{Name: name(f.Name, i), Identity: fmt.Sprintf("%s#%d", f.Identity, i), Seen: f.Seen, End: pipeline.Position(g.NumRows), Rows: g.NumRows})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(unfinished) > 0 && len(splits) == 0 {
		return nil, fmt.Errorf("parquetsource: %d files, %q first, end without a Parquet footer, and no file is whole; wait until they are written, or write them again: %w",
			len(unfinished), unfinished[0], pipeline.ErrUnavailable)
	}
	slices.SortFunc(splits, func(a, b pipeline.Split) int { return cmp.Compare(a.Name, b.Name) })
	return splits, nil
}

// unfinished reports whether a file is still being written, and logs it, once for each length.
func (s *Source) unfinished(ctx context.Context, file filesplit.File) (bool, error) {
	if s.opts.Complete {
		return false, nil
	}
	f, err := s.files.Open(ctx, file)
	if err != nil {
		return false, err
	}
	is, err := pqfile.Unfinished(f, file.Size)
	if isBad(err) { // it has become shorter, which the footer shows too
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil || !is {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.unfinished[file.Path] != file.Size+1 {
		s.opts.Log.Warn("a Parquet file has no footer yet and is left out", "file", file.Path, "bytes", file.Size,
			"advice", "wait until it is written, or write it again; to count it as a bad row, set complete: true in the source")
		s.mu.unfinished[file.Path] = file.Size + 1
	}
	return true, nil
}

// sameIDs ensures that columns asked for as [IDs] are the same in all files: batches of different files may be joined.
type sameIDs struct {
	file   string
	fields []arrow.Field
}

func (a *sameIDs) check(file string, fields []arrow.Field, leaves []*pqfile.Node) error {
	have := typed(fields, leaves)
	if a.fields == nil {
		a.file, a.fields = file, have
		return nil
	}
	var faults []error
	for i, f := range have {
		if first := a.fields[i]; !arrow.TypeEqual(f.Type, first.Type) {
			faults = append(faults, fmt.Errorf("parquetsource: column %q is %s in %s and %s in %s; say which type it is to be read as: %w",
				f.Name, first.Type, a.file, f.Type, file, pipeline.ErrConfig))
		}
	}
	return errors.Join(faults...)
}

// name is that of the split for a row group.
func name(file string, group int) string { return fmt.Sprintf("%s#%04d", file, group) }

// cutName takes a split's name apart.
func cutName(split string) (file string, group int, ok bool) {
	i := strings.LastIndexByte(split, '#')
	if i < 0 {
		return "", 0, false
	}
	group, err := strconv.Atoi(split[i+1:])
	return split[:i], group, err == nil
}

// isBad reports whether an error says that the content of a file is at fault.
func isBad(err error) bool {
	return errors.Is(err, pqfile.ErrMalformed) || errors.Is(err, pqfile.ErrUnsupported) || errors.Is(err, pqfile.ErrTooLarge)
}

// explain turns errors of the file system and of patterns into those of the contract.
func (s *Source) explain(err error) error {
	if filesplit.Unreadable(err) {
		return fmt.Errorf("parquetsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	return fmt.Errorf("parquetsource: %w: %w", pipeline.ErrConfig, err)
}

// footer returns the footer of a file, read before if the file has not changed since.
func (s *Source) footer(ctx context.Context, file filesplit.File) (*pqfile.Meta, error) {
	f, err := s.files.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	meta, err := s.read(f, file.Path)
	return meta, errors.Join(err, f.Close())
}

func (s *Source) read(f fsx.File, path string) (*pqfile.Meta, error) {
	info := f.Info()
	s.mu.Lock()
	have, ok := s.mu.footers[path]
	s.mu.Unlock()
	if ok && have.size == info.Size && have.time.Equal(info.ModTime) {
		return have.meta, nil
	}
	meta, err := pqfile.ReadMeta(f, info.Size)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.footers) >= keepFooters {
		clear(s.mu.footers)
	}
	s.mu.footers[path] = footer{info.Size, info.ModTime, meta}
	return meta, nil
}

// take returns buffers for a column.
func (s *Source) take() *pqfile.Buffers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pop(&s.mu.buffers)
}

// scratch returns what the columns of a reader share.
func (s *Source) scratch() *pqfile.Scratch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pop(&s.mu.scratches)
}

// pop takes the last of a list of spare things, or makes one.
func pop[T any](spare *[]*T) *T {
	n := len(*spare)
	if n == 0 {
		return new(T)
	}
	last := (*spare)[n-1]
	*spare = (*spare)[:n-1]
	return last
}

// giveBack is called when a reader needs its scratch no longer.
func (s *Source) giveBack(b *pqfile.Scratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.scratches) == 0 {
		s.mu.scratches = append(s.mu.scratches, b)
	}
}

// put gives buffers back.
func (s *Source) put(b *pqfile.Buffers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.buffers) < s.opts.Columns.NumFields() {
		s.mu.buffers = append(s.mu.buffers, b)
	}
}

// Open opens a row group. Errors: [pipeline.ErrUnavailable] when the file cannot be read, [pipeline.ErrConfig] when it
// lacks a column or the row group, a [*pipeline.GapError] for a position after its last row.
func (s *Source) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Batch], error) {
	file, group, ok := cutName(split.Name)
	if !ok {
		return nil, fmt.Errorf("parquetsource: split %q names no row group: %w", split.Name, pipeline.ErrConfig)
	}
	found, err := s.files.Find(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("parquetsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	env.Locate(split.Name, found.Path)
	f, err := s.files.Open(ctx, found)
	if err != nil {
		return nil, s.explain(err)
	}
	r := &Reader{source: s, env: env, file: f, group: group, pos: int64(from), rows: int64(from), split: split.Name}
	if err := r.open(found.Path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Describe returns the columns of a file with the types that lose nothing, for listings and for jobs that want
// everything: int64, float32, float64, bool, binary and lists of these. It leaves out columns that cannot be read, such as
// structures, whose names it returns too. A field's metadata has, under [pipeline.MetadataKind], what its numbers mean where they are date, time, timestamp or uint64. Errors: [pipeline.ErrUnavailable], [pipeline.ErrBadData].
func Describe(ctx context.Context, in fsx.FS, path string) (schema *arrow.Schema, unreadable []string, err error) {
	f, err := in.Open(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("parquetsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	meta, err := pqfile.ReadMeta(f, f.Info().Size)
	if isBad(err) {
		return nil, nil, fmt.Errorf("parquetsource: %s: %w: %w", path, pipeline.ErrBadData, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parquetsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	var fields []arrow.Field
	for _, n := range meta.Root.Children {
		if dt := natural(n); dt != nil {
			f := arrow.Field{Name: n.Name, Type: dt, Nullable: true}
			if kind := meaning(bottom(n)); kind != "" {
				f.Metadata = arrow.NewMetadata([]string{pipeline.MetadataKind}, []string{kind})
			}
			fields = append(fields, f)
		} else {
			unreadable = append(unreadable, n.Name)
		}
	}
	return arrow.NewSchema(fields, nil), unreadable, nil
}
