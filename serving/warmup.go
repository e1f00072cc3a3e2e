package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/tfrecord"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving/rows"
)

// WarmupName is where requests lie that a version answers before it serves, below its folder or the folder of the model's versions: PredictionLogs in a TFRecord file, as
// TensorFlow Serving has them and [RequestLog] writes them.
const WarmupName = export.WarmupName

// maxWarmup is how many requests such a file has at most, as TensorFlow Serving has it.
const maxWarmup = 1000

// warmupFiles are where such requests for a version may lie, the first that is there counts.
func warmupFiles(dir string) []string {
	name := filepath.FromSlash(WarmupName)
	return []string{filepath.Join(dir, name), filepath.Join(filepath.Dir(dir), name)}
}

// warmUp answers the requests of a version, or where it has none those of the model, and returns how many there were. Errors: a file that cannot be read, and requests that the model
// cannot answer, for which TensorFlow Serving refuses a version too.
func (v *Version) warmUp(ctx context.Context, dir string) (n int, err error) {
	for _, name := range warmupFiles(dir) {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			n, err = v.answerAll(ctx, f)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return n, fmt.Errorf("serving: warm-up requests: %s: %w", name, err)
		}
		return n, nil
	}
	return 0, nil
}

// answerAll answers stored requests.
func (v *Version) answerAll(ctx context.Context, from io.Reader) (n int, err error) {
	begin := bufio.NewReader(from)
	if head, err := begin.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		return 0, errors.New("the file is compressed with gzip, and warm-up requests are read as they are: unpack it")
	}
	r := tfrecord.NewReader(begin, nil)
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if n++; n > maxWarmup {
			return n, fmt.Errorf("there are more than %d requests: keep some of them", maxWarmup)
		}
		if err := v.answerStored(ctx, b); err != nil {
			if st, ok := status.FromError(err); ok {
				if err = errors.New(st.Message()); st.Code() == codes.Unavailable { // of a row shard
					err = fmt.Errorf("%w: %w", rows.ErrNotReady, err)
				}
			}
			return n, fmt.Errorf("request %d: %w", n, err)
		}
	}
}

// answerStored answers a PredictionLog, whatever model and version it was of.
func (v *Version) answerStored(ctx context.Context, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the server met a fault of its own: %v", p)
		}
	}()
	l := limits{examples: 1 << 16, bytes: 4 * tfrecord.DefaultMaxRecordBytes}
	var log tfs.PredictionLog
	if err := proto.Unmarshal(b, &log); err != nil {
		return fmt.Errorf("no PredictionLog: %w", err)
	}
	predict := func(in *Input, err error) error {
		if err == nil {
			_, err = v.Predict(ctx, in, nil)
		}
		return err
	}
	head := func(kind string, spec *tfs.ModelSpec, input *tfs.Input) error {
		if _, err := v.headOf(kind, spec.GetSignatureName()); err != nil {
			return err
		}
		return predict(readInput(input, l))
	}
	switch log := log.GetLogType().(type) {
	case *tfs.PredictionLog_PredictLog:
		r := log.PredictLog.GetRequest()
		return predict(v.readTensors(r.GetModelSpec().GetSignatureName(), r.GetInputs(), l))
	case *tfs.PredictionLog_ClassifyLog:
		r := log.ClassifyLog.GetRequest()
		return head(SignatureClassify, r.GetModelSpec(), r.GetInput())
	case *tfs.PredictionLog_RegressLog:
		r := log.RegressLog.GetRequest()
		return head(SignatureRegress, r.GetModelSpec(), r.GetInput())
	case *tfs.PredictionLog_MultiInferenceLog:
		return predict(readInput(log.MultiInferenceLog.GetRequest().GetInput(), l))
	}
	return errors.New("it is neither of Predict, Classify, Regress nor MultiInference")
}
