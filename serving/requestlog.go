package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// RequestLogOptions say which requests are kept where. Dir and Rate are required; the zero value of everything else works.
type RequestLogOptions struct {
	// Dir is a folder of the log's own.
	Dir string
	// Rate is the share of the requests that are kept, above 0 and at most 1; each is drawn for itself.
	Rate float64
	// FileBytes is the largest file; 0: 64 MiB. FileAge is after how long a file is complete that is not as large; 0: 10 minutes.
	FileBytes int64
	FileAge   time.Duration
	// MaxBytes bounds all files together, the oldest of which are removed; 0: 1 GiB. It is at least twice FileBytes.
	MaxBytes int64
	// Metrics counts what is kept and what is not; nil: nothing does.
	Metrics *Metrics
	// Logger gets a line when the disk cannot be written to; nil: nothing is logged.
	Logger *slog.Logger
}

// RequestLog keeps some requests that were answered, with their answers, as TensorFlow Serving does: PredictionLogs in TFRecord files, any of which may warm a version up
// ([WarmupName]). A file has its name once it is complete and durable; a process that is killed loses the one that it was writing. Requests never wait for the disk: what it cannot
// take is not kept, and counted. Methods may overlap, but for Close; those of a nil one keep nothing.
type RequestLog struct {
	o     RequestLogOptions
	log   *slog.Logger
	lock  *fsx.Lock
	queue chan []byte
	stop  chan struct{}
	done  chan struct{}

	// Of the goroutine that writes.
	number  int64
	file    fsx.Writer // nil: none was begun
	records *tfrecord.Writer
	pending int  // requests of that file
	broken  bool // the last file could not be written, which was logged
}

// queued is how many requests wait for the disk at most.
const queued = 256

// The names of files.
const logPrefix, logSuffix = "requests-", ".tfrecord"

// OpenRequestLog makes a log, whose goroutine ends with Close. Errors: options that cannot be; a folder that cannot be read or made.
func OpenRequestLog(o RequestLogOptions) (*RequestLog, error) {
	o.FileBytes, o.MaxBytes, o.FileAge = cmp.Or(o.FileBytes, 64<<20), cmp.Or(o.MaxBytes, 1<<30), cmp.Or(o.FileAge, 10*time.Minute)
	switch {
	case !(o.Rate > 0 && o.Rate <= 1):
		return nil, fmt.Errorf("serving: a request log keeps a share of the requests above 0 and at most 1, not %g", o.Rate)
	case o.FileBytes < 0 || o.FileAge < 0 || o.MaxBytes < 2*o.FileBytes:
		return nil, fmt.Errorf("serving: a request log of %d bytes at most cannot have files of %d: it needs two", o.MaxBytes, o.FileBytes)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("serving: request log: %w", err)
	}
	lock, err := fsx.TryLock(filepath.Join(o.Dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("serving: request log: %s: %w (is it another server's?)", o.Dir, err)
	}
	l := &RequestLog{
		o: o, lock: lock, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), queue: make(chan []byte, queued), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.begin(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	go func() { defer close(l.done); l.run() }()
	return l, nil
}

// begin finds the numbers that are taken, and removes what a killed process has begun.
func (l *RequestLog) begin() error {
	begun, err := filepath.Glob(filepath.Join(l.o.Dir, "."+logPrefix+"*.tmp"))
	for _, name := range begun {
		err = errors.Join(err, os.Remove(name))
	}
	files, err2 := l.files()
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("serving: request log: %w", err)
	}
	for _, f := range files {
		l.number = max(l.number, f.number)
	}
	return l.clean()
}

// Close writes what waits and completes the last file; one that cannot be written is lost as others are.
func (l *RequestLog) Close() error {
	if l == nil {
		return nil
	}
	close(l.stop)
	<-l.done
	return l.lock.Close()
}

// wants draws whether a request is kept.
func (l *RequestLog) wants() bool { return l != nil && (l.o.Rate == 1 || rand.Float64() < l.o.Rate) }

// add keeps a request, which it does not hold on to.
func (l *RequestLog) add(spec *tfs.ModelSpec, p *tfs.PredictionLog) {
	p.LogMetadata = &tfs.LogMetadata{ModelSpec: spec, SamplingConfig: &tfs.SamplingConfig{SamplingRate: l.o.Rate}, TimestampSecs: time.Now().Unix()}
	b, err := proto.Marshal(p)
	if err != nil || int64(len(b)) > l.o.FileBytes-recordFrame {
		l.o.Metrics.logged(false, 1)
		return
	}
	select {
	case l.queue <- b:
	default:
		l.o.Metrics.logged(false, 1)
	}
}

// recordFrame is what a TFRecord has around its data, bytes.
const recordFrame = 16

// run writes until Close.
func (l *RequestLog) run() {
	age := time.NewTicker(l.o.FileAge)
	defer age.Stop()
	complete := func() {
		if err := l.complete(); err != nil {
			l.fault(err)
		}
	}
	for {
		select {
		case b := <-l.queue:
			l.write(b)
		case <-age.C:
			complete()
		case <-l.stop:
			for {
				select {
				case b := <-l.queue:
					l.write(b)
				default:
					complete()
					return
				}
			}
		}
	}
}

// write adds a record to the file, or to the next one where that is full.
func (l *RequestLog) write(b []byte) {
	err := func() error {
		if l.file != nil && l.records.Offset()+int64(len(b))+recordFrame > l.o.FileBytes {
			if err := l.complete(); err != nil {
				return err
			}
		}
		if l.file == nil {
			l.number++
			var err error
			if l.file, err = (fsx.Local{}).Create(context.Background(), filepath.Join(l.o.Dir, fmt.Sprintf("%s%08d%s", logPrefix, l.number, logSuffix))); err != nil {
				return err
			}
			l.records = tfrecord.NewWriter(l.file, nil)
		}
		return l.records.Write(b)
	}()
	if err != nil {
		l.o.Metrics.logged(false, 1)
		l.fault(err)
		return
	}
	l.pending++
}

// fault gives the file up, and says so once until there is another.
func (l *RequestLog) fault(err error) {
	if l.file != nil {
		err = errors.Join(err, l.end(false))
	}
	if !l.broken {
		l.log.Error("requests cannot be kept", "dir", l.o.Dir, "err", err)
	}
	l.broken = true
}

// complete gives the file its name, and removes the oldest ones.
func (l *RequestLog) complete() error {
	if l.file == nil {
		return nil
	}
	err := l.records.Close()
	if err == nil {
		err = l.file.Commit(context.Background())
	}
	if err = errors.Join(err, l.end(err == nil)); err != nil {
		return fmt.Errorf("serving: request log: %w", err)
	}
	l.broken = false
	return l.clean()
}

// end closes the file, whose requests are kept if it is complete and otherwise lost.
func (l *RequestLog) end(complete bool) error {
	l.o.Metrics.logged(complete, l.pending)
	err := l.file.Close()
	l.file, l.pending = nil, 0
	return err
}

// logFile is a complete file.
type logFile struct {
	name          string
	number, bytes int64
}

// files lists the complete files, oldest first.
func (l *RequestLog) files() (out []logFile, err error) {
	entries, err := os.ReadDir(l.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("serving: request log: %w", err)
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), logPrefix)
		text, ok2 := strings.CutSuffix(text, logSuffix)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || !ok2 || err != nil || n < 0 {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody took it away
		}
		if err != nil {
			return nil, fmt.Errorf("serving: request log: %w", err)
		}
		out = append(out, logFile{filepath.Join(l.o.Dir, e.Name()), n, info.Size()})
	}
	slices.SortFunc(out, func(a, b logFile) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

// clean removes the oldest files until there is room for another one.
func (l *RequestLog) clean() error {
	files, err := l.files()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, f := range files {
		total += f.bytes
	}
	for _, f := range files {
		if total <= l.o.MaxBytes-l.o.FileBytes {
			break
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("serving: request log: %w", err)
		}
		total -= f.bytes
	}
	return nil
}
