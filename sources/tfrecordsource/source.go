package tfrecordsource

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
)

// Source describes TFRecord files. Its methods may be called from several goroutines at once.
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

// Schema implements [pipeline.Source]: payload and position.
func (s *Source) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source]: files end.
func (s *Source) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source) String() string { return "tfrecord " + strings.Join(s.opts.Files, " ") }

// Fingerprint implements [pipeline.Source]: everything but the size of blocks.
func (s *Source) Fingerprint() string {
	return pipeline.Fingerprint("tfrecord", s.opts, "BlockRows", "BlockBytes", "Known")
}

// Splits lists the files, looking into each for its compression. The End of a plain file is its size, that of a gzip file
// is not known. Errors: [pipeline.ErrConfig] for patterns without a file, [pipeline.ErrUnavailable] when files cannot be
// read.
func (s *Source) Splits(ctx context.Context) ([]pipeline.Split, error) {
	parts, err := filesplit.Parts(ctx, s.files, filesplit.Compression(s.opts.Compression), tfrecord.IsGzip)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case filesplit.Unreadable(err):
		return nil, fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrConfig, err)
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
		return nil, fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	env.Locate(split.Name, path)
	stream, err := filesplit.Open(path, filesplit.Compression(s.opts.Compression), tfrecord.IsGzip)
	if err != nil {
		return nil, fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	opts := tfrecord.ReaderOptions{MaxRecordBytes: s.opts.MaxRecordBytes}
	if !stream.IsGzip() {
		opts.Offset = int64(from)
		if err := stream.SeekTo(int64(from)); err != nil {
			_ = stream.Close() // the seek's error says more
			return nil, fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrUnavailable, err)
		}
	}
	records := filesplit.NewRecords(stream, scanner{tfrecord.NewReader(stream, &opts)}, filesplit.RecordsOptions{
		Mem: env.Mem(), Rows: s.opts.BlockRows, Bytes: s.opts.BlockBytes, From: int64(from),
	})
	return &Reader{env: env, source: env.Source, split: split.Name, schema: s.schema, records: records}, nil
}
