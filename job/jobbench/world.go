package jobbench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// The world that jobs are trained on: rows of one id in each of 39 fields, as wide as the advertising data sets that factorization machines
// are compared on. The ids of a field follow Zipf's law with exponent 1.1, and labels a logistic model of them.
const (
	fields   = 39
	ids      = 25_600 // of each field
	exponent = 1.1
	rows     = 300_000
)

func field(f int) string { return fmt.Sprintf("f%02d", f) }

// flat is the world for other programs: ids.u32 has the ids of a row after those of the row before, little-endian, each plus 25,600 for
// every field before its own; label.u8 has a byte a row; rows.libsvm has lines of "label id:1 id:1 ...".
type flat struct {
	ids, labels, lines *bufio.Writer
	buf                []byte
	close              []func() error
}

func newFlat(dir string) (*flat, error) {
	w := &flat{}
	for _, f := range []struct {
		name string
		to   **bufio.Writer
	}{{"ids.u32", &w.ids}, {"label.u8", &w.labels}, {"rows.libsvm", &w.lines}} {
		file, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		*f.to = bufio.NewWriterSize(file, 1<<20)
		w.close = append(w.close, (*f.to).Flush, file.Close)
	}
	return w, nil
}

// row writes a row, whose ids are those of their fields.
func (w *flat) row(click bool, of []int) error {
	label := byte(0)
	if click {
		label = 1
	}
	w.buf = append(w.buf[:0], '0'+label)
	for f, id := range of {
		w.buf = append(strconv.AppendInt(append(w.buf, ' '), int64(f*ids+id), 10), ":1"...)
	}
	w.buf = append(w.buf, '\n')
	_, err := w.lines.Write(w.buf)
	w.buf = w.buf[:0]
	for f, id := range of {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(f*ids+id))
	}
	_, err2 := w.ids.Write(w.buf)
	return errors.Join(err, err2, w.labels.WriteByte(label))
}

// Close ends the files. Buffered writers keep their errors until then.
func (w *flat) Close() error {
	var errs []error
	for _, f := range w.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// writeWorld writes n rows to four Parquet files, and where others is not nil to that too.
func writeWorld(dir string, n int, others *flat) error {
	rng := rand.New(rand.NewPCG(1, fields))
	cumulated, sum := make([]float64, ids), 0.0
	for i := range cumulated {
		sum += math.Pow(float64(i+1), -exponent)
		cumulated[i] = sum
	}
	weights := make([][]float64, fields)
	scattered := make([][]int, fields) // frequent ids are not neighbours
	for f := range weights {
		weights[f], scattered[f] = make([]float64, ids), rng.Perm(ids)
		for i := range weights[f] {
			weights[f][i] = .35 * rng.NormFloat64()
		}
	}
	return writeParquet(dir, n, func(_ int, of []int) (bool, error) {
		logit := -1.2
		for f := range of {
			of[f] = scattered[f][min(sort.SearchFloat64s(cumulated, rng.Float64()*sum), ids-1)]
			logit += weights[f][of[f]]
		}
		click := rng.Float64() < 1/(1+math.Exp(-logit))
		if others == nil {
			return click, nil
		}
		return click, others.row(click, of)
	})
}

// writeParquet writes n rows to four files. draw fills the ids of row i and returns its label.
func writeParquet(dir string, n int, draw func(i int, of []int) (click bool, err error)) error {
	group := parquet.Group{"click": parquet.Leaf(parquet.BooleanType)}
	for f := range fields {
		group[field(f)] = parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.Plain)
	}
	schema := parquet.NewSchema("bench", group)
	const files = 4
	for part := range files {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("part-%d.parquet", part)))
		if err != nil {
			return err
		}
		buffered := bufio.NewWriterSize(file, 1<<20)
		w := parquet.NewWriter(buffered, schema)
		err = writeRows(w, n*part/files, n*(part+1)/files, draw)
		if err := errors.Join(err, w.Close(), buffered.Flush(), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func writeRows(w parquet.RowWriter, from, to int, draw func(i int, of []int) (bool, error)) error {
	batch, of := make([]parquet.Row, 1000), make([]int, fields)
	for from < to {
		batch = batch[:min(to-from, len(batch))]
		for i := range batch {
			click, err := draw(from+i, of)
			if err != nil {
				return err
			}
			// Columns are in the order of their names: click comes first.
			row := append(batch[i][:0], parquet.BooleanValue(click).Level(0, 0, 0))
			for f, id := range of {
				row = append(row, parquet.Int64Value(int64(id)).Level(0, 0, f+1))
			}
			batch[i] = row
		}
		if _, err := w.WriteRows(batch); err != nil {
			return err
		}
		from += len(batch)
	}
	return nil
}
