package jobbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
	"github.com/monolith-go/monolith/transforms/parse"
)

// What a request of the benchmark is: one user with so many items. The first fields are the user's, the same in all examples of a request.
const (
	requestRows = 256
	userFields  = 20
	numRequests = 32 // that differ
	inTurn      = 64 // of a candidate at a time, at least: the first and the last of a turn leave a core without work
	serveCores  = 2
	pinnedProcs = serveCores + 1 // GOMAXPROCS of a process that serves with pinned threads
	serveRows   = 100_000
)

// Serve measures answers to requests of 256 examples, of one user each, with DeepFM over 39 fields on two cores: requests a second in this process, over gRPC and over REST on
// loopback with the client in this process too, beside onnxruntime and TensorFlow, which predict in their processes with the same model and have the requests in memory; the time of
// an answer at half of that load; both also with threads that are not pinned; and what is allocated for one. Then the same in this process with the rows of row shards. o.Rows is how many rows the model is trained on.
func Serve(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = serveRows
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(serveCores))
	s, err := newServed(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	theirs, absent, stop, err := s.rivals(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop()
	free, err := s.unpinned(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, free.close()) }()
	for _, way := range []struct {
		name      string
		ask, free func(context.Context, int) error
	}{
		{"in process", s.inProcess, free.inProcess}, {"over gRPC", s.overGRPC, free.overGRPC}, {"over REST", s.overREST, free.overREST},
	} {
		name := "serve deepfm " + way.name + ", 2 cores"
		if !o.Wants(name) {
			continue
		}
		turn := func(name string, procs int, ask func(context.Context, int) error) bench.Candidate {
			return bench.Candidate{Name: name, Run: func() (float64, error) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				return inTurn, each(ctx, inTurn, 2*serveCores, ask)
			}}
		}
		r, err := bench.Compare(ctx, o, name, "requests/s", bench.Wall, turn("monolith", pinnedProcs, way.ask), theirs...)
		if err != nil {
			return nil, err
		}
		r.Absent = absent
		results = append(results, r)
		if r, err = bench.Compare(ctx, o, name+", pinned or not", "requests/s", bench.Wall, turn("pinned", pinnedProcs, way.ask), turn("not pinned", serveCores, way.free)); err != nil {
			return nil, err
		}
		results = append(results, r)
		halves, err := atHalf(ctx, o, name, max(r.Ours, r.Theirs["not pinned"]), way.ask, way.free)
		if err != nil {
			return nil, err
		}
		allocated, err := allocations(ctx, name, way.ask)
		if err != nil {
			return nil, err
		}
		results = append(append(results, halves...), allocated)
	}
	sharded, err := serveFromShards(ctx, o, free)
	return append(results, sharded...), err
}

// served is a model that is served, with requests for it.
type served struct {
	dir     string // of the exports
	models  *serving.Models
	inputs  []*serving.Input
	encoded [][]byte // as PredictRequest
	bodies  [][]byte // as JSON
	mean    float64  // of the predictions of the first
	outs    sync.Pool

	rpc     *grpc.Server
	web     *http.Server
	conn    *grpc.ClientConn
	url     string
	running sync.WaitGroup
}

func newServed(ctx context.Context, o bench.Options, dir string) (_ *served, err error) {
	others, err := newFlat(dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writeWorld(dir, o.Rows, others), others.Close()); err != nil {
		return nil, err
	}
	trained := filepath.Join(dir, "trained")
	if _, err := train(ctx, shape{model: deep, batch: 4096, workers: serveCores, epochs: 1}, dir, trained); err != nil {
		return nil, err
	}
	s := &served{dir: dir}
	s.outs.New = func() any { return new([][]float32) }
	for _, format := range []string{"native", "onnx", "savedmodel"} {
		if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: trained, Format: format, Dir: filepath.Join(dir, format), Workers: serveCores}); err != nil {
			return nil, err
		}
	}
	if err := s.ask(o.Rows); err != nil {
		return nil, err
	}
	if err := s.open(ctx, serving.Options{PinThreads: true}); err != nil {
		return nil, err
	}
	return s, nil
}

// unpinned is the same model and requests, with threads that run where the kernel lets them.
func (s *served) unpinned(ctx context.Context) (*served, error) {
	p := &served{dir: s.dir, inputs: s.inputs, encoded: s.encoded, bodies: s.bodies}
	p.outs.New = s.outs.New
	return p, p.open(ctx, serving.Options{})
}

// open opens the model and serves it; where there is an error nothing is open.
func (s *served) open(ctx context.Context, o serving.Options) (err error) {
	s.models = serving.NewModels(serving.ModelsOptions{Recipe: func(m *export.Model) (parse.Options, error) { return wiring.RecipeOptions(m.Recipe, components.All()) }})
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.models.Configure(ctx, []serving.ModelConfig{{Name: "deepfm", Dir: filepath.Join(s.dir, "native")}}); err != nil {
		return err
	}
	o.Models = s.models
	if err := s.listen(o); err != nil {
		return err
	}
	return s.agree(ctx)
}

// ask makes the requests of rows of the world, and writes them for others.
func (s *served) ask(rows int) error {
	raw, err := os.ReadFile(filepath.Join(s.dir, "ids.u32"))
	if err != nil {
		return err
	}
	var flat []byte
	for i := range numRequests {
		in := &serving.Input{Form: serving.FormFeatures, Rows: requestRows, Columns: map[string]*serving.Column{}}
		request := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "deepfm", SignatureName: serving.SignatureFeatures}, Inputs: map[string]*tensorflow.TensorProto{}}
		body := map[string][]int64{}
		offsets := make([]int32, requestRows+1)
		for r := range offsets {
			offsets[r] = int32(r)
		}
		for f := range fields {
			c := &serving.Column{Offsets: offsets, Ints: make([]int64, requestRows)}
			var content []byte
			for r := range requestRows {
				row := (i*requestRows + r) % rows
				if f < userFields {
					row = i % rows
				}
				of, err := fid.New(f+1, uint64(binary.LittleEndian.Uint32(raw[4*(row*fields+f):]))-uint64(f*ids))
				if err != nil {
					return err
				}
				c.Ints[r] = int64(of)
				content = binary.LittleEndian.AppendUint64(content, uint64(of))
			}
			flat = append(flat, content...)
			in.Columns[field(f)], body[field(f)] = c, c.Ints
			request.Inputs[field(f)] = &tensorflow.TensorProto{
				Dtype: tensorflow.DataType_DT_INT64, TensorContent: content,
				TensorShape: &tensorflow.TensorShapeProto{Dim: []*tensorflow.TensorShapeProto_Dim{{Size: requestRows}, {Size: 1}}},
			}
		}
		encoded, err := proto.Marshal(request)
		if err != nil {
			return err
		}
		text, err := json.Marshal(map[string]any{"signature_name": serving.SignatureFeatures, "inputs": body})
		if err != nil {
			return err
		}
		s.inputs, s.encoded, s.bodies = append(s.inputs, in), append(s.encoded, encoded), append(s.bodies, text)
	}
	return os.WriteFile(filepath.Join(s.dir, "requests.i64"), flat, 0o600)
}

// listen serves over gRPC and REST on loopback.
func (s *served) listen(o serving.Options) error {
	server := serving.NewServer(o)
	overRPC, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.rpc = server.GRPC(serving.GRPCOptions{})
	s.running.Go(func() { _ = s.rpc.Serve(overRPC) }) // a call says what is wrong
	if s.conn, err = grpc.NewClient(overRPC.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	overHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url, s.web = "http://"+overHTTP.Addr().String()+"/v1/models/deepfm:predict", server.HTTP(nil)
	s.running.Go(func() { _ = s.web.Serve(overHTTP) })
	return nil
}

func (s *served) close() error {
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.rpc != nil {
		s.rpc.Stop()
	}
	if s.web != nil {
		errs = append(errs, s.web.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	s.running.Wait()
	if s.models != nil {
		s.models.Close()
	}
	return errors.Join(errs...)
}

// inProcess predicts request i.
func (s *served) inProcess(ctx context.Context, i int) error {
	v, _, done, err := s.models.Use("deepfm", serving.Which{})
	if err != nil {
		return err
	}
	defer done()
	out := s.outs.Get().(*[][]float32)
	*out, err = v.Predict(ctx, s.inputs[i%numRequests], *out)
	s.outs.Put(out)
	return err
}

// encodedMessages is a codec of messages that are encoded already.
type encodedMessages struct{}

func (encodedMessages) Marshal(m any) ([]byte, error) { return *m.(*[]byte), nil }

func (encodedMessages) Unmarshal(b []byte, m any) error {
	*m.(*[]byte) = append((*m.(*[]byte))[:0], b...)
	return nil
}

func (encodedMessages) Name() string { return "proto" }

// overGRPC asks request i.
func (s *served) overGRPC(ctx context.Context, i int) error {
	_, err := s.predictGRPC(ctx, i)
	return err
}

func (s *served) predictGRPC(ctx context.Context, i int) (answer []byte, err error) {
	err = s.conn.Invoke(ctx, tfs.PredictionService_Predict_FullMethodName, &s.encoded[i%numRequests], &answer, grpc.ForceCodec(encodedMessages{}))
	return answer, err
}

// overREST asks request i.
func (s *served) overREST(ctx context.Context, i int) error {
	_, err := s.predictREST(ctx, i)
	return err
}

func (s *served) predictREST(ctx context.Context, i int) (answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.bodies[i%numRequests]))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	answer, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, errors.Join(err, resp.Body.Close())
}

// agree refuses answers that are not the same all ways.
func (s *served) agree(ctx context.Context) error {
	v, _, done, err := s.models.Use("deepfm", serving.Which{})
	if err != nil {
		return err
	}
	defer done()
	for i := range s.inputs {
		want, err := v.Predict(ctx, s.inputs[i], nil)
		if err != nil {
			return err
		}
		b, err := s.predictGRPC(ctx, i)
		if err != nil {
			return err
		}
		var over tfs.PredictResponse
		if err := proto.Unmarshal(b, &over); err != nil {
			return err
		}
		for _, tensor := range over.Outputs {
			if !slices.Equal(tensor.FloatVal, want[0]) {
				return fmt.Errorf("request %d: gRPC answers something else", i)
			}
		}
		if b, err = s.predictREST(ctx, i); err != nil {
			return err
		}
		var rest struct{ Outputs [][]float32 }
		if err := json.Unmarshal(b, &rest); err != nil {
			return err
		}
		if !slices.Equal(slices.Concat(rest.Outputs...), want[0]) {
			return fmt.Errorf("request %d: REST answers something else", i)
		}
		if i == 0 {
			for _, x := range want[0] {
				s.mean += float64(x) / float64(len(want[0]))
			}
		}
	}
	return nil
}

// rivals starts the others, who must predict what we do.
func (s *served) rivals(ctx context.Context, o bench.Options) (theirs []bench.Candidate, absent map[string]string, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range stops {
			end()
		}
	}
	absent = map[string]string{}
	same := func(mean float64) error {
		if math.Abs(mean-s.mean) > 1e-5 {
			return fmt.Errorf("the first request's predictions have the mean %g, ours %g", mean, s.mean)
		}
		return nil
	}
	for _, program := range []struct{ name, script, file string }{
		{"onnxruntime", "serve_onnxruntime.py", "onnx/*/model.onnx"}, {"tensorflow", "serve_tensorflow.py", "savedmodel/[0-9]*"},
	} {
		found, err := filepath.Glob(filepath.Join(s.dir, program.file))
		if err != nil || len(found) != 1 {
			stop()
			return nil, nil, nil, errors.Join(fmt.Errorf("exports for %s: %q, want one", program.name, found), err)
		}
		for _, mode := range []string{"threads", "requests"} {
			v := rival{name: program.name + " by " + mode, program: program.name, script: program.script, check: same}
			v.args = []string{found[0], fmt.Sprint(fields), fmt.Sprint(requestRows), mode}
			c, end, err := v.startScript(ctx, o, s.dir, inTurn)
			if why, ok := errors.AsType[*absentError](err); ok {
				absent[v.name] = why.reason
				continue
			}
			if err != nil {
				stop()
				return nil, nil, nil, err
			}
			stops, theirs = append(stops, end), append(theirs, c)
		}
	}
	return theirs, absent, stop, nil
}

// each asks n requests, so many at a time.
func each(ctx context.Context, n, atOnce int, ask func(context.Context, int) error) error {
	var next atomic.Int64
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for w := range atOnce {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[w] != nil {
					return
				}
				errs[w] = ask(ctx, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// atHalf asks at half of a rate, at equal distances whether answers have come or not, and says how long answers took since their time had come: p99 beside p50, milliseconds. The
// same of a loop that takes as long as an answer and does nothing else is beside it, what the machine makes of it: where two of them run at a time, it does not always give each a core. They take turns of so
// many requests that a turn has a p99, and the median of turns counts: one pause of the machine is in one turn, and both meet the same.
func atHalf(ctx context.Context, o bench.Options, name string, rate float64, ask, free func(context.Context, int) error) ([]bench.Result, error) {
	const n = 300
	const turns = 1 << 20
	alone := math.Inf(1) // what so many take on an idle core, milliseconds
	for range 20 {
		begin := time.Now()
		loop(turns)
		alone = min(alone, time.Since(begin).Seconds()*1e3)
	}
	var ours, others, loops halfLoad
	for range o.Rounds {
		before := runtime.GOMAXPROCS(pinnedProcs)
		took, own, err := atDistances(n, 2/rate, func(i int) error { return ask(ctx, i) })
		if runtime.GOMAXPROCS(before); err != nil {
			return nil, err
		}
		ours.add(took)
		if took, _, err = atDistances(n, 2/rate, func(i int) error { return free(ctx, i) }); err != nil {
			return nil, err
		}
		others.add(took)
		same := int(own[n/2] / alone * turns)
		if took, _, err = atDistances(n, 2/rate, func(int) error {
			loop(same)
			return context.Cause(ctx)
		}); err != nil {
			return nil, err
		}
		loops.add(took)
	}
	result := func(name string, h *halfLoad) bench.Result {
		return bench.Result{
			Name: name + ", p99 at half load", Unit: "ms", Ours: bench.Median(h.p99), Ratio: bench.Median(h.ratios), Machine: bench.Machine(),
			Theirs: map[string]float64{"p50": bench.Median(h.p50), "p50 of a loop": bench.Median(loops.p50), "p99 of a loop": bench.Median(loops.p99)},
		}
	}
	return []bench.Result{result(name, &ours), result(name+", not pinned", &others)}, nil
}

// halfLoad is what turns at half of the load gave, milliseconds.
type halfLoad struct{ p50, p99, ratios []float64 }

// add adds a turn, sorted.
func (h *halfLoad) add(took []float64) {
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	h.p50, h.p99, h.ratios = append(h.p50, p50), append(h.p99, p99), append(h.ratios, p99/p50)
}

// atDistances begins n calls at distances of so many seconds, and says how long they took since their time had come, and for themselves; milliseconds, sorted.
func atDistances(n int, distance float64, call func(i int) error) (took, own []float64, err error) {
	took, own = make([]float64, n), make([]float64, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range n {
		due := begin.Add(time.Duration(float64(i) * distance * float64(time.Second)))
		time.Sleep(time.Until(due))
		wg.Go(func() {
			began := time.Now()
			errs[i] = call(i)
			took[i], own[i] = time.Since(due).Seconds()*1e3, time.Since(began).Seconds()*1e3
		})
	}
	wg.Wait()
	slices.Sort(took)
	slices.Sort(own)
	return took, own, errors.Join(errs...)
}

// loop computes for a while, in no memory.
func loop(turns int) {
	x := 1.0
	for range turns {
		x = float64(x*1.0000001) + .1
	}
	looped.Store(math.Float64bits(x))
}

// looped keeps what loops compute, so that they are not left out.
var looped atomic.Uint64

// allocations says how often memory is allocated for a request, by client and server together.
func allocations(ctx context.Context, name string, ask func(context.Context, int) error) (bench.Result, error) {
	const n = numRequests
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := each(ctx, n, 1, ask); err != nil {
		return bench.Result{}, err
	}
	runtime.ReadMemStats(&after)
	return bench.Result{
		Name: name + ", allocations", Unit: "a request", Ours: float64(after.Mallocs-before.Mallocs) / n, Theirs: map[string]float64{}, Machine: bench.Machine(),
	}, nil
}
