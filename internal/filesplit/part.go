package filesplit

import (
	"context"
	"fmt"
)

// Part is a file as a split of a source that reads records.
type Part struct {
	Name, Identity, Seen string // of the [File]
	// End is the position after the last record, as [Records] counts: the size of a plain file, -1 for a gzip stream.
	End int64
}

// Parts lists files and looks into each for how it is compressed. Errors: those of [Files.List], those of the file system
// (see [Unreadable]) and the context's cause.
func Parts(ctx context.Context, of *Files, c Compression, isGzip func(head []byte) bool) ([]Part, error) {
	files, err := of.List(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]Part, 0, len(files))
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p := Part{Name: f.Name, Identity: f.Identity, Seen: f.Seen, End: f.Size}
		switch c {
		case None:
		case Gzip:
			p.End = -1
		default:
			in, err := of.Open(ctx, f)
			if err != nil {
				return nil, err
			}
			s, err := NewStream(in, c, isGzip)
			if err != nil {
				return nil, err
			}
			if s.IsGzip() {
				p.End = -1
			}
			if err := s.Close(); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}
