package serving

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // clients may send messages that are compressed, and get answers that are
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/simd"
	servingv1 "github.com/monolith-go/monolith/proto/monolith/serving/v1"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving/rows"
)

// GRPCOptions say how calls are taken.
type GRPCOptions struct {
	// Credentials encrypts; nil: nothing does.
	Credentials credentials.TransportCredentials
	// Reload lets callers who may ask at all choose what is served (HandleReloadConfigRequest), which names folders of this machine.
	Reload bool
}

// What strangers can make a server of gRPC keep.
const (
	// maxStreams is how many calls of a connection there are at a time, those included whose answer the client does not read; it waits when it has as many. A quarter of
	// [Options].MaxCalls as it is by default: nobody takes all of them by one connection.
	maxStreams = 256
	// maxHeaders bounds the headers of a call, bytes.
	maxHeaders = 256 << 10
	// minPing is how often a client may ask whether the connection is there; pingEvery is how often the server does, which closes one that says nothing for pingTimeout.
	minPing, pingEvery, pingTimeout = 5 * time.Second, 20 * time.Second, 5 * time.Second
	// idleTimeout is after how long a connection without a call is closed; its client opens another when it makes one.
	idleTimeout = 5 * time.Minute
	// handshakeTimeout is how long a connection may take to begin.
	handshakeTimeout = 5 * time.Second
)

// GRPC makes a server of PredictionService and ModelService of TensorFlow Serving, of rows where it is a row shard, health and reflection. The caller serves and stops it, after [Server.Drain]: who watches the
// health stays otherwise.
func (s *Server) GRPC(o GRPCOptions) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(min(s.o.MaxBytes, math.MaxInt32))), grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: idleTimeout}), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InTapHandle(s.tap), grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream), grpc.WaitForHandlers(true),
	}
	if o.Credentials != nil {
		opts = append(opts, grpc.Creds(o.Credentials))
	}
	q := newRequests()
	g := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(newPredictCodec(q)))...)
	g.RegisterService(q.predictDesc(), &predictionService{s})
	tfs.RegisterModelServiceServer(g, &modelService{s, o.Reload})
	if part := s.models.o.Part; part != nil {
		servingv1.RegisterRowsServer(g, rows.NewServer(*part, s.models, s.o.Metrics.lookedUp))
	}
	healthpb.RegisterHealthServer(g, &healthService{s: s})
	reflection.Register(g)
	return g
}

// healthService answers by whether each model has a version that serves.
type healthService struct {
	healthpb.UnimplementedHealthServer
	s *Server
}

// state is the health of a model by its name, or of all without one.
func (h *healthService) state(model string) healthpb.HealthCheckResponse_ServingStatus {
	serving := h.s.ready() == nil
	if serving && model != "" {
		_, _, done, err := h.s.models.Use(model, Which{})
		switch {
		case err == nil:
			done()
		case status.Code(err) == codes.NotFound:
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		serving = err == nil
	}
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Check implements the health service: of a model by its name, or of all without one.
func (h *healthService) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st := h.state(r.GetService())
	if st == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		_, err := h.s.models.Status(r.GetService(), Which{})
		return nil, err
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// watchEvery is how often somebody who watches the health is told what has changed of it.
const watchEvery = time.Second

// Watch implements the health service: what Check would say, at once and whenever it is another, until the server drains.
func (h *healthService) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if now := h.state(r.GetService()); now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-stream.Context().Done():
			return asStatus(stream.Context().Err())
		case <-h.s.draining:
			if last == healthpb.HealthCheckResponse_NOT_SERVING {
				return h.s.ready()
			}
		case <-t.C:
		}
	}
}

// healthMethods may be asked by anybody.
const healthMethods = "/grpc.health.v1.Health/"

// tap is gRPC's [tap.ServerInHandle]: it asks the guard about a call, and counts it, before its message is received, so that a stranger costs the headers.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if strings.HasPrefix(info.FullMethodName, healthMethods) {
		return ctx, nil
	}
	if err := s.admitCall(ctx, info); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	a := s.arriving(ctx)
	context.AfterFunc(ctx, func() { // a stream's context ends with it
		a.timer.Stop()
		s.ended()
	})
	return a, nil
}

// arriving is the context of a call that ends with DEADLINE_EXCEEDED when its message has not come within [Options].Timeout: keepalive finds connections that are gone, and not who
// keeps one and sends half a message. A call that is a stream, as those of reflection are, ends then in any case.
type arriving struct {
	context.Context
	timer *time.Timer
	late  atomic.Bool
}

// arrivingKey finds the arriving of a call in a context made of it.
type arrivingKey struct{}

func (s *Server) arriving(ctx context.Context) *arriving {
	ctx, cancel := context.WithCancel(ctx)
	a := &arriving{Context: ctx}
	a.timer = time.AfterFunc(s.o.Timeout, func() {
		a.late.Store(true)
		cancel()
	})
	return a
}

// Err implements [context.Context].
func (a *arriving) Err() error {
	err := a.Context.Err()
	if err != nil && a.late.Load() {
		err = context.DeadlineExceeded
	}
	return err
}

// Value implements [context.Context].
func (a *arriving) Value(key any) any {
	if key == (arrivingKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// admitCall asks the guard about a call.
func (s *Server) admitCall(ctx context.Context, info *tap.Info) error {
	if s.o.Guard == nil {
		return nil
	}
	return s.admit(s.o.Guard.Admit(caller(ctx, info.Header)))
}

func (s *Server) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	if a, ok := ctx.Value(arrivingKey{}).(*arriving); ok { // its message is here
		a.timer.Stop()
	}
	defer s.caught(info.FullMethod, &err)
	return next(ctx, r)
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.caught(info.FullMethod, &err)
	return next(srv, stream)
}

// whichOf is the version that a request names.
func whichOf(m *tfs.ModelSpec) (w Which) {
	w.Label = m.GetVersionLabel()
	if v := m.GetVersion(); v != nil {
		n := v.GetValue()
		w.Number = &n
	}
	return w
}

// specOf names the version that has answered.
func specOf(m *tfs.ModelSpec, number int64, signature string) *tfs.ModelSpec {
	return &tfs.ModelSpec{Name: m.GetName(), VersionChoice: &tfs.ModelSpec_Version{Version: &tfs.Int64Value{Value: number}}, SignatureName: signature}
}

// predictionService is TensorFlow Serving's.
type predictionService struct{ s *Server }

// Predict implements PredictionService.
func (p *predictionService) Predict(ctx context.Context, r *tfs.PredictRequest) (out *tfs.PredictResponse, err error) {
	m := r.GetModelSpec()
	signature := m.GetSignatureName()
	if raw, ok := assigns(signature); ok {
		return p.assign(ctx, r, raw)
	}
	if signature == "" {
		signature = SignatureDefault
	}
	err = p.s.do(ctx, call{model: m.GetName(), which: whichOf(m), api: "Predict", entry: entryGRPC, input: func(v *Version, l limits) (*Input, error) {
		return v.readTensors(signature, r.GetInputs(), l)
	}}, func(v *Version, a *answer) error {
		out = v.response(specOf(m, a.version, signature), a, r.GetOutputFilter())
		for _, name := range r.GetOutputFilter() {
			if out.Outputs[name] == nil {
				return invalid("the model has no output %q; it has %s", name, strings.Join(v.headNames(), ", "))
			}
		}
		return nil
	})
	if err == nil && p.s.o.Log.wants() {
		p.s.o.Log.add(out.ModelSpec, predictLog(r, out))
	}
	return out, err
}

// response is an answer with the heads that a filter names, or all without one.
func (v *Version) response(spec *tfs.ModelSpec, a *answer, filter []string) *tfs.PredictResponse {
	out := &tfs.PredictResponse{Outputs: map[string]*tensorflow.TensorProto{}, ModelSpec: spec}
	for i, h := range v.heads {
		if len(filter) == 0 || slices.Contains(filter, h.Name) {
			out.Outputs[h.Name] = &tensorflow.TensorProto{
				Dtype: tensorflow.DataType_DT_FLOAT, TensorShape: shapeOf(int64(a.rows), int64(h.Width)), FloatVal: a.heads[i],
			}
		}
	}
	return out
}

func predictLog(r *tfs.PredictRequest, out *tfs.PredictResponse) *tfs.PredictionLog {
	return &tfs.PredictionLog{LogType: &tfs.PredictionLog_PredictLog{PredictLog: &tfs.PredictLog{Request: r, Response: out}}}
}

func (v *Version) headNames() (names []string) {
	for _, h := range v.heads {
		names = append(names, h.Name)
	}
	return names
}

func shapeOf(sizes ...int64) *tensorflow.TensorShapeProto {
	out := &tensorflow.TensorShapeProto{}
	for _, n := range sizes {
		out.Dim = append(out.Dim, &tensorflow.TensorShapeProto_Dim{Size: n})
	}
	return out
}

// readTensors makes the examples of a request to predict.
func (v *Version) readTensors(signature string, tensors map[string]*tensorflow.TensorProto, l limits) (*Input, error) {
	form, err := v.predictForm(signature)
	if err != nil {
		return nil, err
	}
	if name := v.recordInput(form, func(name string) bool { return tensors[name] != nil }, len(tensors)); name != "" {
		c, err := readTensor(name, tensors[name], &l)
		if err != nil {
			return nil, err
		}
		if c.Type != Texts {
			return nil, invalid("input %q has %s, not serialized %ss (DT_STRING)", name, c.Type, messageOf(name))
		}
		return v.readRecords(name, c.Texts, l)
	}
	in := &Input{Form: form, Columns: map[string]*Column{}, Rows: -1}
	first := ""
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		names := v.in.raw
		if form == FormFeatures {
			names = v.in.names
		}
		if err := known(name, names); err != nil {
			return nil, err
		}
		c, err := readTensor(name, tensors[name], &l)
		if err != nil {
			return nil, err
		}
		if rows := len(c.Offsets) - 1; in.Rows < 0 {
			in.Rows, first = rows, name
		} else if rows != in.Rows {
			return nil, invalid("feature %q has %d examples, and feature %q has %d", name, rows, first, in.Rows)
		}
		in.Columns[name] = c
	}
	in.Rows = max(in.Rows, 0)
	return in, nil
}

// shapeText names a shape in errors, with its first dimensions.
func shapeText(s *tensorflow.TensorShapeProto) string {
	if s.GetUnknownRank() {
		return "a shape of unknown rank"
	}
	const most = 8
	sizes := make([]string, 0, most)
	for i, d := range s.GetDim() {
		if i == most {
			sizes = append(sizes, "and "+strconv.Itoa(len(s.GetDim())-most)+" more")
			break
		}
		sizes = append(sizes, strconv.FormatInt(d.GetSize(), 10))
	}
	return "the shape [" + strings.Join(sizes, ", ") + "]"
}

// maxElements bounds what a tensor may say that it has: one value may stand for many.
const maxElements = 1 << 26

// readTensor reads a tensor of shape [rows] or [rows, n]. Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED.
func readTensor(name string, t *tensorflow.TensorProto, l *limits) (*Column, error) {
	dims := t.GetTensorShape().GetDim()
	if t.GetTensorShape().GetUnknownRank() || len(dims) < 1 || len(dims) > 2 {
		return nil, invalid("input %q has %s, must have one such as [examples] or [examples, values]", name, shapeText(t.GetTensorShape()))
	}
	rows, width := dims[0].GetSize(), int64(1)
	if len(dims) == 2 {
		width = dims[1].GetSize()
	}
	if rows < 0 || width < 0 {
		return nil, invalid("input %q has %s; a size is at least 0, and that of a tensor which is sent is known", name, shapeText(t.GetTensorShape()))
	}
	if rows > maxElements || width > maxElements || rows*width > maxElements {
		return nil, invalid("input %q has %s; %d values are the most", name, shapeText(t.GetTensorShape()), maxElements)
	}
	if err := l.count(int(rows)); err != nil {
		return nil, err
	}
	n := int(rows * width)
	content := t.GetTensorContent()
	if len(content) == 0 && n > 1 {
		const largest = 24 // bytes of a value, which the message need not have
		if err := l.spend(largest * max(0, n-listed(t))); err != nil {
			return nil, err
		}
	}
	c := &Column{Offsets: make([]int32, rows+1)}
	for i := range c.Offsets {
		c.Offsets[i] = int32(int64(i) * width)
	}
	if err := inRange(name, t); err != nil {
		return nil, err
	}
	var err error
	switch t.GetDtype() {
	case tensorflow.DataType_DT_INT64:
		c.Ints, err = values(name, n, content, t.GetInt64Val(), 8, littleInt64, func(x int64) int64 { return x })
	case tensorflow.DataType_DT_UINT64:
		c.Unsigned = true
		c.Ints, err = values(name, n, content, t.GetUint64Val(), 8, littleInt64, func(x uint64) int64 { return int64(x) })
	case tensorflow.DataType_DT_INT32:
		c.Ints, err = values(name, n, content, t.GetIntVal(), 4, func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) }, func(x int32) int64 { return int64(x) })
	case tensorflow.DataType_DT_INT16:
		c.Ints, err = values(name, n, content, t.GetIntVal(), 2, func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) }, func(x int32) int64 { return int64(x) })
	case tensorflow.DataType_DT_UINT16:
		c.Ints, err = values(name, n, content, t.GetIntVal(), 2, func(b []byte) int64 { return int64(binary.LittleEndian.Uint16(b)) }, func(x int32) int64 { return int64(x) })
	case tensorflow.DataType_DT_INT8:
		c.Ints, err = values(name, n, content, t.GetIntVal(), 1, func(b []byte) int64 { return int64(int8(b[0])) }, func(x int32) int64 { return int64(x) })
	case tensorflow.DataType_DT_UINT8:
		c.Ints, err = values(name, n, content, t.GetIntVal(), 1, func(b []byte) int64 { return int64(b[0]) }, func(x int32) int64 { return int64(x) })
	case tensorflow.DataType_DT_UINT32:
		c.Ints, err = values(name, n, content, t.GetUint32Val(), 4, func(b []byte) int64 { return int64(binary.LittleEndian.Uint32(b)) }, func(x uint32) int64 { return int64(x) })
	case tensorflow.DataType_DT_BOOL:
		c.Ints, err = values(name, n, content, t.GetBoolVal(), 1, func(b []byte) int64 { return int64(b[0] & 1) }, func(x bool) int64 {
			if x {
				return 1
			}
			return 0
		})
	case tensorflow.DataType_DT_FLOAT:
		c.Type = Floats
		c.Floats, err = values(name, n, content, t.GetFloatVal(), 4, littleFloat32, func(x float32) float32 { return x })
	case tensorflow.DataType_DT_DOUBLE:
		c.Type = Floats
		large := 0. // a number that is none of float32
		narrow := func(x float64) float32 {
			y := float32(x)
			if math.IsInf(float64(y), 0) && !math.IsInf(x, 0) {
				large = x
			}
			return y
		}
		c.Floats, err = values(name, n, content, t.GetDoubleVal(), 8, func(b []byte) float32 { return narrow(math.Float64frombits(binary.LittleEndian.Uint64(b))) }, narrow)
		if err == nil && large != 0 {
			return nil, invalid("input %q is %g, which does not fit a float of 32 bits (about ±3.4e38)", name, large)
		}
	case tensorflow.DataType_DT_HALF, tensorflow.DataType_DT_BFLOAT16:
		var bits []uint16
		bits, err = values(name, n, content, t.GetHalfVal(), 2, binary.LittleEndian.Uint16, func(x int32) uint16 { return uint16(x) })
		c.Type, c.Floats = Floats, make([]float32, len(bits))
		if t.GetDtype() == tensorflow.DataType_DT_HALF {
			simd.FromFP16(c.Floats, bits)
		} else {
			simd.FromBF16(c.Floats, bits)
		}
	case tensorflow.DataType_DT_STRING:
		c.Type = Texts
		if len(content) > 0 {
			return nil, invalid("input %q has text in tensor_content, which is for numbers; string_val has text", name)
		}
		c.Texts, err = values(name, n, nil, t.GetStringVal(), 1, nil, func(x []byte) []byte { return x })
	default:
		return nil, invalid("input %q has the type %s; integers of 8 to 64 bits, DT_BOOL, DT_HALF, DT_BFLOAT16, DT_FLOAT, DT_DOUBLE and DT_STRING are read", name, t.GetDtype())
	}
	return c, err
}

// inRange refuses numbers of int_val, which has 32 bits, that the tensor's type does not have.
func inRange(name string, t *tensorflow.TensorProto) error {
	var least, most int32
	switch t.GetDtype() {
	case tensorflow.DataType_DT_INT8:
		least, most = math.MinInt8, math.MaxInt8
	case tensorflow.DataType_DT_UINT8:
		most = math.MaxUint8
	case tensorflow.DataType_DT_INT16:
		least, most = math.MinInt16, math.MaxInt16
	case tensorflow.DataType_DT_UINT16:
		most = math.MaxUint16
	default:
		return nil
	}
	for i, x := range t.GetIntVal() {
		if x < least || x > most {
			return invalid("input %q has %d at place %d of int_val, and %s is %d to %d", name, x, i, t.GetDtype(), least, most)
		}
	}
	return nil
}

func littleInt64(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }

func littleFloat32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// listed is how many values the lists of a tensor have.
func listed(t *tensorflow.TensorProto) int {
	return len(t.GetInt64Val()) + len(t.GetUint64Val()) + len(t.GetIntVal()) + len(t.GetUint32Val()) + len(t.GetBoolVal()) + len(t.GetHalfVal()) + len(t.GetFloatVal()) + len(t.GetDoubleVal()) + len(t.GetStringVal())
}

// values are the elements of a tensor: in its content, or in a list, whose last stands for all that follow (tensor.proto).
func values[T, U any](name string, n int, content []byte, list []T, size int, read func([]byte) U, convert func(T) U) ([]U, error) {
	out := make([]U, 0, n)
	switch {
	case len(content) > 0:
		if len(content) != n*size {
			return nil, invalid("input %q has %d bytes for %d values of %d", name, len(content), n, size)
		}
		for i := range n {
			out = append(out, read(content[i*size:]))
		}
	case len(list) > n || len(list) == 0 && n > 0:
		return nil, invalid("input %q has %d values, its shape says %d", name, len(list), n)
	default:
		for i := range n {
			out = append(out, convert(list[min(i, len(list)-1)]))
		}
	}
	return out, nil
}

// readInput makes the examples of a request to classify or regress: what the context has counts where an example has it not.
func readInput(x *tfs.Input, l limits) (*Input, error) {
	list, given := x.GetExampleList().GetExamples(), (*tensorflow.Example)(nil)
	if c := x.GetExampleListWithContext(); c != nil {
		list, given = c.GetExamples(), c.GetContext()
	}
	if err := l.count(len(list)); err != nil {
		return nil, err
	}
	in := &Input{Form: FormExample}
	for _, e := range list {
		if given != nil { // a feature that occurs again is in place of the first
			e = &tensorflow.Example{Features: &tensorflow.Features{Feature: merged(given, e)}}
		}
		b, err := proto.Marshal(e)
		if err != nil {
			return nil, invalid("%v", err)
		}
		if err := l.spend(len(b)); err != nil {
			return nil, err
		}
		in.Records = append(in.Records, b)
	}
	return in, nil
}

// merged are the features of an example before those of its context.
func merged(context, e *tensorflow.Example) map[string]*tensorflow.Feature {
	out := map[string]*tensorflow.Feature{}
	maps.Copy(out, context.GetFeatures().GetFeature())
	maps.Copy(out, e.GetFeatures().GetFeature())
	return out
}

// head asks for the predictions of one head.
func (p *predictionService) head(ctx context.Context, m *tfs.ModelSpec, input *tfs.Input, kind, api string, use func(v *Version, a *answer, head int)) error {
	at := 0
	return p.s.do(ctx, call{model: m.GetName(), which: whichOf(m), api: api, entry: entryGRPC, input: func(v *Version, l limits) (_ *Input, err error) {
		if at, err = v.headOf(kind, m.GetSignatureName()); err != nil {
			return nil, err
		}
		return readInput(input, l)
	}}, func(v *Version, a *answer) error {
		use(v, a, at)
		return nil
	})
}

// Classify implements PredictionService.
func (p *predictionService) Classify(ctx context.Context, r *tfs.ClassificationRequest) (out *tfs.ClassificationResponse, err error) {
	result, spec, err := p.classify(ctx, r.GetModelSpec(), r.GetInput(), "Classify")
	out = &tfs.ClassificationResponse{Result: result, ModelSpec: spec}
	if err == nil && p.s.o.Log.wants() {
		p.s.o.Log.add(spec, &tfs.PredictionLog{LogType: &tfs.PredictionLog_ClassifyLog{ClassifyLog: &tfs.ClassifyLog{Request: r, Response: out}}})
	}
	return out, err
}

func (p *predictionService) classify(ctx context.Context, m *tfs.ModelSpec, input *tfs.Input, api string) (out *tfs.ClassificationResult, spec *tfs.ModelSpec, err error) {
	err = p.head(ctx, m, input, SignatureClassify, api, func(v *Version, a *answer, head int) {
		scores, classes := v.scores(a, head), v.classes[head]
		out, spec = &tfs.ClassificationResult{}, specOf(m, a.version, SignatureClassify+"/"+v.heads[head].Name)
		for at := 0; at < len(scores); at += len(classes) {
			row := &tfs.Classifications{}
			for i, class := range classes {
				row.Classes = append(row.Classes, &tfs.Class{Label: class, Score: scores[at+i]})
			}
			out.Classifications = append(out.Classifications, row)
		}
	})
	return out, spec, err
}

// Regress implements PredictionService.
func (p *predictionService) Regress(ctx context.Context, r *tfs.RegressionRequest) (*tfs.RegressionResponse, error) {
	result, spec, err := p.regress(ctx, r.GetModelSpec(), r.GetInput(), "Regress")
	out := &tfs.RegressionResponse{Result: result, ModelSpec: spec}
	if err == nil && p.s.o.Log.wants() {
		p.s.o.Log.add(spec, &tfs.PredictionLog{LogType: &tfs.PredictionLog_RegressLog{RegressLog: &tfs.RegressLog{Request: r, Response: out}}})
	}
	return out, err
}

func (p *predictionService) regress(ctx context.Context, m *tfs.ModelSpec, input *tfs.Input, api string) (out *tfs.RegressionResult, spec *tfs.ModelSpec, err error) {
	err = p.head(ctx, m, input, SignatureRegress, api, func(v *Version, a *answer, head int) {
		out, spec = &tfs.RegressionResult{}, specOf(m, a.version, SignatureRegress+"/"+v.heads[head].Name)
		for _, x := range a.heads[head] {
			out.Regressions = append(out.Regressions, &tfs.Regression{Value: x})
		}
	})
	return out, spec, err
}

// maxTasks is how many tasks a request has at most, each of which predicts its examples.
const maxTasks = 64

// MultiInference implements PredictionService: each task on the same examples.
func (p *predictionService) MultiInference(ctx context.Context, r *tfs.MultiInferenceRequest) (*tfs.MultiInferenceResponse, error) {
	out := &tfs.MultiInferenceResponse{}
	if n := len(r.GetTasks()); n == 0 || n > maxTasks {
		return nil, invalid("the request has %d tasks; 1 to %d are done", n, maxTasks)
	}
	for i, task := range r.GetTasks() {
		result := &tfs.InferenceResult{}
		var err error
		switch task.GetMethodName() {
		case methodClassify:
			var c *tfs.ClassificationResult
			c, result.ModelSpec, err = p.classify(ctx, task.GetModelSpec(), r.GetInput(), "MultiInference")
			result.Result = &tfs.InferenceResult_ClassificationResult{ClassificationResult: c}
		case methodRegress:
			var c *tfs.RegressionResult
			c, result.ModelSpec, err = p.regress(ctx, task.GetModelSpec(), r.GetInput(), "MultiInference")
			result.Result = &tfs.InferenceResult_RegressionResult{RegressionResult: c}
		default:
			err = invalid("task %d has the method %q; %s and %s are done", i, task.GetMethodName(), methodClassify, methodRegress)
		}
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, result)
	}
	if p.s.o.Log.wants() {
		p.s.o.Log.add(out.Results[0].ModelSpec, &tfs.PredictionLog{LogType: &tfs.PredictionLog_MultiInferenceLog{MultiInferenceLog: &tfs.MultiInferenceLog{Request: r, Response: out}}})
	}
	return out, nil
}

// signatureDef is the one field of metadata that there is.
const signatureDef = "signature_def"

// GetModelMetadata implements PredictionService.
func (p *predictionService) GetModelMetadata(_ context.Context, r *tfs.GetModelMetadataRequest) (*tfs.GetModelMetadataResponse, error) {
	for _, field := range r.GetMetadataField() {
		if field != signatureDef {
			return nil, invalid("metadata field %q is not known; %s is", field, signatureDef)
		}
	}
	if len(r.GetMetadataField()) == 0 {
		return nil, invalid("the request names no metadata field; %s is one", signatureDef)
	}
	m := r.GetModelSpec()
	v, number, done, err := p.s.models.Use(m.GetName(), whichOf(m))
	if err != nil {
		return nil, err
	}
	defer done()
	infos := func(list []tensorInfo) map[string]*tensorflow.TensorInfo {
		out := map[string]*tensorflow.TensorInfo{}
		for _, i := range list {
			out[i.name] = &tensorflow.TensorInfo{Name: i.name, Dtype: tensorflow.DataType(i.dtype), TensorShape: shapeOf(i.shape...)}
		}
		return out
	}
	defs := &tfs.SignatureDefMap{SignatureDef: map[string]*tensorflow.SignatureDef{}}
	for _, sig := range v.signatures() {
		defs.SignatureDef[sig.name] = &tensorflow.SignatureDef{MethodName: sig.method, Inputs: infos(sig.inputs), Outputs: infos(sig.outputs)}
	}
	b, err := proto.Marshal(defs)
	if err != nil {
		return nil, asStatus(err)
	}
	return &tfs.GetModelMetadataResponse{ModelSpec: specOf(m, number, ""), Metadata: map[string]*tfs.Any{
		signatureDef: {TypeUrl: "type.googleapis.com/tensorflow.serving.SignatureDefMap", Value: b},
	}}, nil
}

// modelService is TensorFlow Serving's.
type modelService struct {
	s      *Server
	reload bool
}

// GetModelStatus implements ModelService.
func (m *modelService) GetModelStatus(_ context.Context, r *tfs.GetModelStatusRequest) (*tfs.GetModelStatusResponse, error) {
	list, err := m.s.models.Status(r.GetModelSpec().GetName(), whichOf(r.GetModelSpec()))
	if err != nil {
		return nil, err
	}
	out := &tfs.GetModelStatusResponse{}
	for _, v := range list {
		st := &tfs.StatusProto{}
		if v.Err != nil {
			st.ErrorCode, st.ErrorMessage = int32(codes.Unknown), v.Err.Error()
		}
		out.ModelVersionStatus = append(out.ModelVersionStatus, &tfs.ModelVersionStatus{Version: v.Version, State: tfs.ModelVersionStatus_State(v.State), Status: st})
	}
	return out, nil
}

// HandleReloadConfigRequest implements ModelService: what is served becomes what the request says.
func (m *modelService) HandleReloadConfigRequest(ctx context.Context, r *tfs.ReloadConfigRequest) (*tfs.ReloadConfigResponse, error) {
	if !m.reload {
		return nil, status.Error(codes.PermissionDenied, "what is served is not chosen by callers here; --allow-reload lets them")
	}
	configs, err := modelConfigs(r.GetConfig(), Policy{})
	if err != nil {
		return nil, err
	}
	if err := m.s.models.Configure(ctx, configs); err != nil {
		if _, ok := status.FromError(err); ok || errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &tfs.ReloadConfigResponse{Status: &tfs.StatusProto{}}, nil
}
