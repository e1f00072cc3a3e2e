package filesource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/pipeline"
)

// Source describes files of one format. Its methods may be called from several goroutines at once.
type Source struct {
	format Format
	opts   Options
	files  *filesplit.Files
	schema *arrow.Schema

	mu     sync.Mutex
	warned map[unfinished]bool
}

// unfinished is the place of a record that a file ends within.
type unfinished struct {
	split string
	at    int64
}

var _ pipeline.Source[*pipeline.Block] = (*Source)(nil)

// New describes a source without touching a file. Errors: every fault of the options at once, each wrapping
// [pipeline.ErrConfig].
func New(format Format, opts Options) (*Source, error) {
	s := &Source{format: format, opts: opts.WithDefaults(), schema: pipeline.WithBegin(pipeline.BlockSchema(false, false))}
	var faults []error
	opts.Check(func(text string, args ...any) {
		faults = append(faults, s.fault(pipeline.ErrConfig, fmt.Errorf(text, args...)))
	})
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	s.files = filesplit.NewFiles(s.opts.FS, opts.Files, opts.Known, opts.Seen, opts.Follow, opts.InOrder)
	return s, nil
}

// first reports whether it is called for the first time for an unfinished record.
func (s *Source) first(split string, at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := unfinished{split, at}
	if s.warned[u] {
		return false
	}
	if s.warned == nil {
		s.warned = map[unfinished]bool{}
	}
	s.warned[u] = true
	return true
}

// fault gives an error its kind and the name of the format's package.
func (s *Source) fault(kind, err error) error {
	return fmt.Errorf("%ssource: %w: %w", s.format.Name(), kind, err)
}

// Schema implements [pipeline.Source]: payload, position and beginning. The blocks of a file with a header carry it in the metadata of
// their schema, which is not known without reading.
func (s *Source) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source]: files end.
func (s *Source) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source) String() string { return s.format.Name() + " " + strings.Join(s.opts.Files, " ") }

// Fingerprint implements [pipeline.Source].
func (s *Source) Fingerprint() string { return s.format.Fingerprint() }

// Splits lists the files, looking into each for its compression. The End of a plain file is its size, that of a gzip file
// is not known. Errors: [pipeline.ErrConfig] for patterns without a file, [pipeline.ErrUnavailable] when files cannot be
// read.
func (s *Source) Splits(ctx context.Context) ([]pipeline.Split, error) {
	parts, err := filesplit.Parts(ctx, s.files, filesplit.Compression(s.opts.Compression), s.format.IsGzip)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case filesplit.Unreadable(err):
		return nil, s.fault(pipeline.ErrUnavailable, err)
	case err != nil:
		return nil, s.fault(pipeline.ErrConfig, err)
	}
	splits := make([]pipeline.Split, len(parts))
	for i, p := range parts {
		splits[i] = pipeline.Split{Name: p.Name, Identity: p.Identity, Seen: p.Seen, End: pipeline.Position(p.End)}
	}
	return splits, nil
}

// Open opens the file that the split is named after, to read it as far as it was when it was listed, or as Options.Seen says of it. Errors: [pipeline.ErrUnavailable]. A position after the file's end
// is a [*pipeline.GapError] of Next.
func (s *Source) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	found, err := s.files.Find(ctx, split.Name)
	if err != nil {
		return nil, s.fault(pipeline.ErrUnavailable, err)
	}
	file, err := s.files.Open(ctx, found)
	if err != nil {
		return nil, s.fault(pipeline.ErrUnavailable, err)
	}
	stream, err := filesplit.NewStream(file, filesplit.Compression(s.opts.Compression), s.format.IsGzip)
	if err != nil {
		return nil, s.fault(pipeline.ErrUnavailable, err)
	}
	r := &Reader{source: s, env: env, split: split.Name, path: found.Path, schema: s.schema, stream: stream, from: int64(from)}
	if _, ok := s.format.(lines); ok {
		r.lines = s.files.Lines(found, stream.IsGzip())
		env.LocateLines(split.Name, found.Path, r.lines.Line)
	} else {
		env.Locate(split.Name, found.Path)
	}
	return r, nil
}
