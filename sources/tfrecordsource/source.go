package tfrecordsource

import (
	"errors"

	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/filesource"
)

// New describes TFRecord files without touching one. Bad records have the reasons "crc mismatch" and "record too large",
// after which reading continues, or "length crc mismatch" and "damaged gzip stream", after which no record can be found. A
// record that the file ends within is not there yet, unless [Options].Complete makes it a bad one ("truncated"). Errors:
// those of [Options.Validate].
func New(opts Options) (*filesource.Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return filesource.New(format{opts.WithDefaults()}, opts.files())
}

// format finds framed records.
type format struct{ opts Options }

var _ filesource.Format = format{}

// Name implements [filesource.Format].
func (format) Name() string { return "tfrecord" }

// IsGzip implements [filesource.Format].
func (format) IsGzip(head []byte) bool { return tfrecord.IsGzip(head) }

// Fingerprint implements [filesource.Format]: everything but the size of blocks and where the files lie.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("tfrecord", f.opts, "BlockRows", "BlockBytes", "Known", "Seen", "Follow", "FS")
}

// Open implements [filesource.Format].
func (f format) Open(stream *filesource.Stream, from int64) (filesource.Records, error) {
	if from > 0 {
		if err := stream.SeekTo(from); err != nil {
			return nil, err
		}
	}
	return scanner{tfrecord.NewReader(stream, &tfrecord.ReaderOptions{MaxRecordBytes: f.opts.MaxRecordBytes, Offset: from})}, nil
}

// scanner says what the framing says.
type scanner struct{ r *tfrecord.Reader }

// Offset implements [filesource.Records].
func (s scanner) Offset() int64 { return s.r.Offset() }

// Scan implements [filesource.Records].
func (s scanner) Scan() ([]byte, error) {
	data, err := s.r.Next()
	if err == nil {
		return data, nil
	}
	if corrupt, ok := errors.AsType[*tfrecord.CorruptError](err); ok {
		detail := corrupt.Detail
		if corrupt.Reason == tfrecord.ReasonTooLarge {
			detail += ": raise max_record_bytes of the source if this is a record"
		}
		err = &filesource.BadRecord{Reason: corrupt.Reason, Err: errors.New(detail), Last: !corrupt.Resumable(), Unfinished: corrupt.Reason == tfrecord.ReasonTruncated}
	}
	return data, err
}
