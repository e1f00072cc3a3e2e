package entrydump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// FilterInfo is what the counters of an admission filter come to. Their places are hashes that upstream computes with absl::Hash,
// which differs from process to process, and of 12 bits of an id: no counter can be given back to its id.
type FilterInfo struct {
	// Splits is how many filters take turns, Capacity how many counters there is room for in all, and Counters how many are in use.
	Splits             int
	Capacity, Counters uint64
	// Failures is how often no room was found.
	Failures uint64
	// Occurrences is the sum of all counters, each of which ends at 15.
	Occurrences uint64
}

// Filter reads the counters of a filter. Errors: [ErrDamaged] with file, record and byte.
func (c *Checkpoint) Filter(ctx context.Context, in fsx.FS, f File) (*FilterInfo, error) {
	info := &FilterInfo{Splits: f.Shards}
	for shard := range f.Shards {
		path := filepath.Join(c.Assets, FileName(f.Name, shard, f.Shards))
		file, err := in.Open(ctx, path)
		if err == nil {
			err = errors.Join(info.split(fsx.NewReader(file)), file.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("entrydump: %s: %w", path, err)
		}
	}
	return info, nil
}

// split reads what one split has: a HashFilterSplitMetaDump, then HashFilterSplitDataDumps.
func (info *FilterInfo) split(in io.Reader) error {
	r := tfrecord.NewReader(in, nil)
	for {
		number, at := r.Records(), r.Offset()
		b, err := r.Next()
		var corrupt *tfrecord.CorruptError
		switch {
		case errors.Is(err, io.EOF) && number == 0:
			return fmt.Errorf("an empty file: %w", ErrDamaged)
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &corrupt):
			return fmt.Errorf("%w: %w", err, ErrDamaged)
		case err != nil:
			return err
		}
		decode := info.cells
		if number == 0 {
			decode = info.meta
		}
		if err := decode(b); err != nil {
			return fmt.Errorf("record %d at byte %d: %w: %w", number, at, err, ErrDamaged)
		}
	}
}

func (info *FilterInfo) meta(b []byte) error {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, _ []byte, n uint64) error {
		if num <= 3 && typ != protowire.VarintType {
			return fmt.Errorf("HashFilterSplitMetaDump, field %d: %w", num, errWire)
		}
		switch num {
		case 1:
			info.Failures += n
		case 2:
			info.Capacity += n
		}
		return nil
	})
}

func (info *FilterInfo) cells(b []byte) error {
	cell := func(v uint64) {
		if count := v & 15; count > 0 {
			info.Counters++
			info.Occurrences += count
		}
	}
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		if num != 2 {
			return nil
		}
		switch typ {
		case protowire.VarintType:
			cell(n)
		case protowire.BytesType:
			for len(v) > 0 {
				n, used := protowire.ConsumeVarint(v)
				if used < 0 {
					return protowire.ParseError(used)
				}
				cell(n)
				v = v[used:]
			}
		default:
			return fmt.Errorf("HashFilterSplitDataDump, field %d: %w", num, errWire)
		}
		return nil
	})
}
