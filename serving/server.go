package serving

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/secure"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// Options say how requests are answered. The zero value works.
type Options struct {
	// Models are those that are served; nil: none are.
	Models *Models
	// Threads is how many requests are computed at a time; 0: one for each CPU, or four where rows come from row shards, for which they wait. A request that comes while CPUs are idle is computed on up to four
	// of them, but of no more than Threads.
	Threads int
	// PinThreads binds the threads that compute to a CPU each while they do, on Linux where the process has two CPUs, so that the kernel's scheduler does not let them share one while the other is idle. A CPU
	// that others keep busy is left to the kernel. Where it cannot be done a line of the log at level debug says why; monolith serve asks for it by default.
	PinThreads bool
	// Waiting is how many requests wait for a thread at most, others being refused with RESOURCE_EXHAUSTED; 0: 64 for each thread.
	Waiting int
	// MaxCalls is how many calls there are at a time over all connections, also such whose request has not come yet, others being refused with RESOURCE_EXHAUSTED before it is
	// received; 0: 1024. Questions about the health are not counted.
	MaxCalls int
	// MaxBytes is the largest request; 0: 64 MiB.
	MaxBytes int64
	// Room is how many bytes requests have together, as they came, that are being answered or whose body is being read; more are refused with RESOURCE_EXHAUSTED, but one that is there
	// alone is not, nor one of a MaxCalls-th of it. What is made of a request takes up to ten times as much. 0: there is no limit.
	Room int64
	// MaxExamples is how many examples a request has at most; 0: 65536.
	MaxExamples int
	// BatchExamples is how many examples of several requests for a version are computed together at most; 0: 256; below 0: each request is computed by itself. Requests with as many
	// are, and those for models whose predictions depend on the other examples of a batch.
	BatchExamples int
	// BatchDelay is how long a request waits for others to be computed with; 0: it does not, and is computed with those that came while all threads were busy.
	BatchDelay time.Duration
	// Timeout is how long a request may take to come, and then to be answered, whose caller sets no deadline, or a later one; 0: 30 s.
	Timeout time.Duration
	// Guard, if not nil, decides who may ask, by token and certificate.
	Guard *secure.Guard
	// Pushers, if not nil, decides who of them may push rows too ([ModelsOptions].Push).
	Pushers *secure.Guard
	// Log, if not nil, keeps some of the requests that were answered. The caller closes it when no more come.
	Log *RequestLog
	// Metrics counts; nil: nothing does.
	Metrics *Metrics
	Logger  *slog.Logger
}

// Server answers requests. Its methods may overlap.
type Server struct {
	o       Options
	models  *Models
	limits  limits
	threads chan struct{}
	waiting atomic.Int64
	calls   atomic.Int64
	room    room

	drain    sync.Once
	draining chan struct{}
	pinned   bool
}

// NewServer makes a server.
func NewServer(o Options) *Server {
	if o.Models == nil {
		o.Models = NewModels(ModelsOptions{})
	}
	perCPU := 1
	if o.Models.o.Rows != nil {
		perCPU = 4
	}
	if o.Threads > 0 {
		o.Models.cores.limit(o.Threads)
	}
	o.Threads = cmp.Or(o.Threads, perCPU*runtime.GOMAXPROCS(0))
	o.Waiting = cmp.Or(o.Waiting, 64*o.Threads)
	o.MaxCalls = cmp.Or(o.MaxCalls, 1024)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxExamples = cmp.Or(o.MaxExamples, 1<<16)
	o.BatchExamples = cmp.Or(o.BatchExamples, 256)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	pinned := false
	if o.PinThreads {
		err := o.Models.cores.pin()
		if pinned = err == nil; !pinned {
			o.Logger.Debug("threads are not pinned", "err", err)
		}
	}
	return &Server{pinned: pinned, o: o, room: room{limit: o.Room, share: o.Room / int64(o.MaxCalls)}, models: o.Models, limits: limits{o.MaxExamples, 4 * o.MaxBytes}, threads: make(chan struct{}, o.Threads), draining: make(chan struct{})}
}

// Pinned reports whether threads that compute are bound to CPUs. Then one of two places of the Go scheduler ([runtime.GOMAXPROCS]) may be held by a thread that
// the kernel does not run, behind one that is bound, and what reads and writes connections waits for it: who serves alone in a process gives it one more.
func (s *Server) Pinned() bool { return s.pinned }

// Drain makes the server unhealthy for good, so that callers go elsewhere, and tells those who watch its health. Requests are answered as before.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

// ready says why the server is not healthy.
func (s *Server) ready() error {
	select {
	case <-s.draining:
		return status.Error(codes.Unavailable, "the server is about to end")
	default:
	}
	if !s.models.Ready() {
		return status.Error(codes.Unavailable, "a model has no version that serves")
	}
	return nil
}

// The ways that requests come, by the names that TensorFlow Serving has for them in metrics.
const (
	entryREST = "REST"
	entryGRPC = "gRPC"
)

// call is a request for predictions of a model.
type call struct {
	model string
	which Which
	// api and entry name it in metrics.
	api, entry string
	// input makes the examples, when the version is known.
	input func(*Version, limits) (*Input, error)
	// into, if not nil, is memory for the answer, which is then good until use has returned.
	into *answer
}

// limits bound what a request becomes: a few bytes of it may stand for much.
type limits struct {
	examples int
	bytes    int64 // of what is made of it, more than a request has: columns become rows with names
}

// count refuses too many examples, before anything is made for each.
func (l limits) count(examples int) error {
	if examples > l.examples {
		return status.Errorf(codes.ResourceExhausted, "the request has %d examples, %d is the most; send several requests", examples, l.examples)
	}
	return nil
}

// spend takes bytes from what the examples may become.
func (l *limits) spend(bytes int) error {
	if l.bytes -= int64(bytes); l.bytes < 0 {
		return status.Error(codes.ResourceExhausted, "the examples become several times as large as a request may be, by what is sent once for many of them; send several requests")
	}
	return nil
}

// answer is what a version predicts.
type answer struct {
	version int64
	rows    int
	heads   [][]float32 // [rows, Width] of each head
	// own is memory for heads.
	own [][]float32
	// kept is a request over HTTP that the log wants, as gRPC would have it; nil: it does not.
	kept *tfs.PredictRequest
}

// do answers a call; use, if not nil, is called with the answer while the version is open.
func (s *Server) do(ctx context.Context, c call, use func(*Version, *answer) error) (err error) {
	began := time.Now()
	h, err := s.models.use(c.model, c.which)
	if err != nil {
		return err
	}
	defer s.models.release(h)
	defer func() { s.o.Metrics.done(c.model, c.api, c.entry, time.Since(began), status.Code(err)) }()
	defer s.caught(c.api, &err)
	v := h.version
	a := c.into
	if a == nil {
		a = &answer{}
	}
	a.version, a.kept = h.number, nil
	if err = s.predict(ctx, v, c, a); err != nil {
		if code := status.Code(err); code == codes.Internal || code == codes.DataLoss {
			s.o.Logger.Error("a request failed", "model", c.model, "version", h.number, "err", err)
		}
		return err
	}
	s.o.Metrics.predicted(c.model, h.number, v.AsOf(), a.rows)
	if a.kept != nil {
		spec := &tfs.ModelSpec{Name: c.model, VersionChoice: &tfs.ModelSpec_Version{Version: &tfs.Int64Value{Value: h.number}}, SignatureName: SignatureFeatures}
		a.kept.ModelSpec = spec
		s.o.Log.add(spec, predictLog(a.kept, v.response(spec, a, nil)))
	}
	return use(v, a)
}

// predict computes the predictions of a request, by itself or with others.
func (s *Server) predict(ctx context.Context, v *Version, c call, a *answer) error {
	began := time.Now()
	if err := s.enter(ctx); err != nil {
		return err
	}
	has := true // a thread
	defer func() {
		if has {
			<-s.threads
		}
	}()
	in, err := c.input(v, s.limits)
	if err != nil {
		return err
	}
	if err := s.limits.count(in.NumRows()); err != nil {
		return err
	}
	x, err := v.read(ctx, in)
	if err != nil {
		return err
	}
	if c.entry == entryREST && s.o.Log.wants() {
		a.kept = x.request(v.in.features)
	}
	a.rows = x.rows
	if time.Since(began) > s.o.Timeout {
		v.free(x)
		return asStatus(context.DeadlineExceeded)
	}
	if !v.joins || x.rows >= s.o.BatchExamples || s.o.BatchDelay == 0 && s.waiting.Load() == 0 {
		defer v.free(x)
		s.o.Metrics.batch(c.model)
		var out [][]float32
		if c.into != nil {
			out = a.own
		}
		a.heads, err = v.compute(ctx, x, out)
		a.own = a.heads
		return err
	}
	has = false
	<-s.threads // for those who wait, and may join
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout-time.Since(began))
	defer cancel()
	a.heads, err = s.together(ctx, v, c.model, x)
	return err
}

// begin counts a call, until ended. Errors: RESOURCE_EXHAUSTED.
func (s *Server) begin() error {
	if s.calls.Add(1) > int64(s.o.MaxCalls) {
		s.calls.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "there are %d calls already, which is the most; try again later, or with another replica", s.o.MaxCalls)
	}
	return nil
}

func (s *Server) ended() { s.calls.Add(-1) }

// enter waits for a thread. Errors: RESOURCE_EXHAUSTED where too many wait, DEADLINE_EXCEEDED, CANCELLED.
func (s *Server) enter(ctx context.Context) error {
	select {
	case s.threads <- struct{}{}:
		return nil
	default:
	}
	if err := s.wait(); err != nil {
		return err
	}
	defer s.waited()
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	select {
	case s.threads <- struct{}{}:
		return nil
	case <-ctx.Done():
		return asStatus(ctx.Err())
	}
}

// wait counts a request that is about to wait, until waited. Errors: RESOURCE_EXHAUSTED.
func (s *Server) wait() error {
	if n := s.waiting.Add(1); n > int64(s.o.Waiting) {
		s.waiting.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "%d requests wait already, which is the most; try again later, or with another replica", s.o.Waiting)
	}
	s.o.Metrics.wait(1)
	return nil
}

func (s *Server) waited() {
	s.waiting.Add(-1)
	s.o.Metrics.wait(-1)
}

// caught, deferred, makes a panic an error of its call, which does not have the panic's value.
func (s *Server) caught(call string, err *error) {
	if p := recover(); p != nil {
		s.o.Logger.Error("a call panicked", "call", call, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the server met a fault of its own in this call; its log says which")
	}
}

// admit decides whether a caller may ask.
func (s *Server) admit(may secure.Right, err error) error {
	switch {
	case errors.Is(err, secure.ErrNoToken), errors.Is(err, secure.ErrToken), errors.Is(err, secure.ErrName):
		return status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	case may < secure.Read:
		return status.Error(codes.PermissionDenied, "the caller may not read")
	}
	return nil
}
