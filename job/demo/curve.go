package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/sources/synthsource"
)

// curve collects what was predicted of each example before it was trained on, and measures it stretch by stretch.
//
// Predictions go to a file of the demo's folder as they are made, before the update that comes of them, so the file never
// holds less than a snapshot does. Opened again, it is cut to what the snapshot holds: what a killed run had trained beyond
// its last snapshot is trained once more, and predicted once more. Labels and true probabilities are not stored: the stream
// can be asked again for every record, because partition k holds the examples k, k+4, k+8 ... in order.
type curve struct {
	stream *synthsource.Stream
	every  int64 // examples of a stretch
	file   *os.File
	buf    []byte

	probs, labels, best []float32
	at                  []time.Duration // when each stretch was complete
	last                time.Duration   // when the last batch was trained on; all runs together, without the time between them
	opened              time.Time
	before              time.Duration // the clock as it was then
}

// batch is a record of the file: n consecutive records of a partition, as they were predicted.
//
//	partition uint32, n uint32, from int64, at int64 (ns), n × float32; little endian
type batch struct {
	partition, from int64
	at              time.Duration
	probs           []float32
}

const batchHeader = 4 + 4 + 8 + 8

func (b *batch) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(b.partition))
	to = binary.LittleEndian.AppendUint32(to, uint32(len(b.probs)))
	to = binary.LittleEndian.AppendUint64(to, uint64(b.from))
	to = binary.LittleEndian.AppendUint64(to, uint64(b.at))
	for _, p := range b.probs {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(p))
	}
	return to
}

// parse reads the first batch of data and returns the rest; false at the end, also where the last one is not whole because
// its writer was killed.
func (b *batch) parse(data []byte) (rest []byte, ok bool) {
	if len(data) < batchHeader {
		return nil, false
	}
	b.partition, b.from = int64(binary.LittleEndian.Uint32(data)), int64(binary.LittleEndian.Uint64(data[8:]))
	b.at = time.Duration(binary.LittleEndian.Uint64(data[16:]))
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	data = data[batchHeader:]
	if n == 0 || b.partition >= partitions || int64(len(data)) < 4*n {
		return nil, false
	}
	b.probs = b.probs[:0]
	for r := range n {
		b.probs = append(b.probs, math.Float32frombits(binary.LittleEndian.Uint32(data[4*r:])))
	}
	return data[4*n:], true
}

// openCurve opens the file at path, cut to the records before the positions in held.
func openCurve(path string, stream *synthsource.Stream, every int64, held [partitions]int64) (_ *curve, err error) {
	c := &curve{stream: stream, every: every}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	var keep []byte
	var b batch
	for rest, ok := b.parse(data); ok; rest, ok = b.parse(rest) {
		n := min(max(held[b.partition]-b.from, 0), int64(len(b.probs)))
		if b.probs = b.probs[:n]; n > 0 {
			keep = b.append(keep)
			c.add(&b)
		}
	}
	var trained int64
	for _, position := range held {
		trained += position
	}
	if trained != c.examples() {
		return nil, fmt.Errorf("demo: %s has the predictions of %d examples, the snapshot was trained on %d: start over in another --dir: %w", path, c.examples(), trained, pipeline.ErrConfig)
	}
	if err := replace(path, keep); err != nil {
		return nil, err
	}
	if c.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	c.before, c.opened = c.last, time.Now()
	return c, nil
}

func (c *curve) close() error { return c.file.Close() }

// clock is how long all runs have taken so far.
func (c *curve) clock() time.Duration { return c.before + time.Since(c.opened) }

func (c *curve) examples() int64 { return int64(len(c.probs)) }

// observe stores a batch and adds it.
func (c *curve) observe(b *batch) error {
	b.at = c.clock()
	c.buf = b.append(c.buf[:0])
	if _, err := c.file.Write(c.buf); err != nil {
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	c.add(b)
	return nil
}

func (c *curve) add(b *batch) {
	var ex synthsource.Example
	n := time.Duration(len(b.probs))
	for r, p := range b.probs {
		c.stream.At((b.from+int64(r))*partitions+b.partition, &ex)
		label := float32(0)
		if ex.Click {
			label = 1
		}
		c.probs, c.labels, c.best = append(c.probs, p), append(c.labels, label), append(c.best, float32(ex.Probability))
		if c.examples()%c.every == 0 {
			c.at = append(c.at, c.last+(b.at-c.last)*time.Duration(r+1)/n)
		}
	}
	c.last = b.at
}

// all measures the whole stream.
func (c *curve) all() (auc, logLoss float64) {
	auc, _ = metric.AUC(c.probs, c.labels, nil)
	logLoss, _ = metric.LogLoss(c.probs, c.labels, nil)
	return auc, logLoss
}

func (c *curve) table() []job.DemoInterval {
	var out []job.DemoInterval
	var began time.Duration
	for k, at := range c.at {
		from, to := int64(k)*c.every, int64(k+1)*c.every
		auc, _ := metric.AUC(c.probs[from:to], c.labels[from:to], nil)
		logLoss, _ := metric.LogLoss(c.probs[from:to], c.labels[from:to], nil)
		best, _ := metric.AUC(c.best[from:to], c.labels[from:to], nil)
		out = append(out, job.DemoInterval{
			Examples: to, ExamplesPerSecond: float64(c.every) / max((at-began).Seconds(), 1e-9),
			AUC: auc, LogLoss: logLoss, BestAUC: best,
		})
		began = at
	}
	return out
}

// replace writes a file that is there as it was or as it is to be, even when the process is killed.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*.tmp")
	if err != nil {
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("demo: %w: %w", errors.Join(err, os.Remove(f.Name())), pipeline.ErrUnavailable)
	}
	return nil
}

// held returns how far the newest good snapshot has read each partition; zeros where there is none.
func (d *demo) held(ctx context.Context) (at [partitions]int64, err error) {
	entries, err := snapshot.List(filepath.Join(d.dir, "snapshots"))
	if err != nil {
		return at, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	for _, e := range entries {
		s, err := snapshot.Open(ctx, e.Path)
		if err != nil {
			d.log.Warn("demo: not a snapshot to continue from", "path", e.Path, "err", err)
			continue
		}
		for _, splits := range s.Info().Positions {
			for split, p := range splits {
				if partition, ok := partitionOf(split); ok {
					at[partition] = int64(max(p.Position, 0))
				}
			}
		}
		if err := s.Close(); err != nil {
			return at, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
		}
		return at, nil
	}
	return at, nil
}

// partitionOf reads the number off a split's name.
func partitionOf(split string) (partition int64, ok bool) {
	_, err := fmt.Sscanf(split, topic+"-%d", &partition)
	return partition, err == nil && partition >= 0 && partition < partitions
}
