package filesource_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/filesource"
)

// paragraphs is a format of records that an empty line ends.
type paragraphs struct{}

func (paragraphs) Name() string            { return "paragraph" }
func (paragraphs) IsGzip(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }
func (paragraphs) Fingerprint() string     { return "paragraph" }

func (paragraphs) Open(s *filesource.Stream, from int64) (filesource.Records, error) {
	if from > 0 {
		if err := s.SeekTo(from); err != nil {
			return nil, err
		}
	}
	return &paragraphReader{bufio.NewReader(s), from}, nil
}

type paragraphReader struct {
	r  *bufio.Reader
	at int64
}

func (p *paragraphReader) Offset() int64 { return p.at }

func (p *paragraphReader) Scan() (record []byte, err error) {
	for {
		line, err := p.r.ReadBytes('\n')
		p.at += int64(len(line))
		switch {
		case err != nil && len(record)+len(line) == 0:
			return nil, err
		case len(line) == 1 || err != nil:
			return append(record, line...), nil //nolint:nilerr // the next call returns it
		case string(line) == "bad\n":
			return line, &filesource.BadRecord{Reason: "bad paragraph", Err: errors.New("it says so itself")}
		}
		record = append(record, line...)
	}
}

// A format of one's own: all it does is find records. Listing, positions, compression and bad rows come with the source.
func Example() {
	ctx := context.Background()
	files := new(fsxtest.Mem) // nil is this machine
	err := fsx.WriteFile(ctx, files, "texts/a.txt", []byte("one\nstill one\n\nbad\ntwo\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	src, err := filesource.New(paragraphs{}, filesource.Options{Files: []string{"texts/*.txt"}, FS: files})
	if err != nil {
		fmt.Println(err)
		return
	}
	skipped := &pipeline.SkipBadRows{}
	splits, err := src.Splits(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := src.Open(ctx, &pipeline.Env{Source: "texts", BadRows: skipped}, splits[0], 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		block, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		payloads, positions := block.Payload(), block.Record().Column(1).(*array.Int64)
		for i := range block.NumRows() {
			fmt.Printf("%q, go on at %d\n", payloads.Value(i), positions.Value(i))
		}
		block.Release()
	}
	fmt.Println("skipped", skipped.Counts(), r.Close())
	// Output:
	// "one\nstill one\n\n", go on at 15
	// "two\n", go on at 23
	// skipped map[bad paragraph:1] <nil>
}
