package textsource

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/pipeline"
)

// Source describes text files. Its methods may be called from several goroutines at once.
type Source struct {
	opts   Options
	files  *filesplit.Files
	schema *arrow.Schema
}

var _ pipeline.Source[*pipeline.Block] = (*Source)(nil)

// New describes a source without touching a file. Errors: those of [Options.Validate].
func New(opts Options) (*Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Source{
		opts: opts.withDefaults(), files: filesplit.NewFiles(opts.Files, opts.Known), schema: pipeline.BlockSchema(false, false),
	}, nil
}

// Schema implements [pipeline.Source]: payload and position. The blocks of a file with a header carry it in the metadata of
// their schema, which is not known without reading.
func (s *Source) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source]: files end.
func (s *Source) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source) String() string { return "text " + strings.Join(s.opts.Files, " ") }

// Fingerprint implements [pipeline.Source]: everything but the size of blocks.
func (s *Source) Fingerprint() string {
	return pipeline.Fingerprint("text", s.opts, "BlockRows", "BlockBytes", "Known")
}

// Splits lists the files, looking into each for its compression. The End of a plain file is its size, that of a gzip file
// is not known. Errors: [pipeline.ErrConfig] for patterns without a file, [pipeline.ErrUnavailable] when files cannot be
// read.
func (s *Source) Splits(ctx context.Context) ([]pipeline.Split, error) {
	parts, err := filesplit.Parts(ctx, s.files, filesplit.Compression(s.opts.Compression), isGzip)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case filesplit.Unreadable(err):
		return nil, fmt.Errorf("textsource: %w: %w", pipeline.ErrUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("textsource: %w: %w", pipeline.ErrConfig, err)
	}
	splits := make([]pipeline.Split, len(parts))
	for i, p := range parts {
		splits[i] = pipeline.Split{Name: p.Name, Identity: p.Identity, End: pipeline.Position(p.End)}
	}
	return splits, nil
}

// Open opens the file that the split is named after. Errors: [pipeline.ErrUnavailable]. A position behind the file's end
// is a [*pipeline.GapError] of Next.
func (s *Source) Open(_ context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	path, err := s.files.Path(split.Name)
	if err != nil {
		return nil, fmt.Errorf("textsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	env.Locate(split.Name, path)
	stream, err := filesplit.Open(path, filesplit.Compression(s.opts.Compression), isGzip)
	if err != nil {
		return nil, fmt.Errorf("textsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	r := &Reader{env: env, source: env.Source, split: split.Name, path: path, schema: s.schema, stream: stream, opts: s.opts, from: int64(from)}
	return r, nil
}

// isGzip knows a gzip stream by its magic number, which no text begins with.
func isGzip(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b }
