package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
	serve "github.com/monolith-go/monolith/serving"
)

// PushOptions say to whom rows are pushed. To and Model are required; the zero value of everything else works.
type PushOptions struct {
	// To is the address for gRPC of a server that takes pushes: one of exports with ServeModelsOptions.Pushes, or of a SavedModel of bytedance/monolith. Model is what it calls the model.
	To, Model string
	// Raw, if not empty, is the shared name of the table that has all others: Raw/raw_assign is asked for, and not hashtable_assign.
	Raw string
	// Tables are the names that the server has for tables, by those of the job; the others are called alike.
	Tables map[string]string
	// Consumer is the name under which the shards keep what the server has not got; empty: one of To and Model.
	Consumer string
	// Follow continues until the context ends, and asks again after Every where nothing has changed (0: 10 s) and where the server does not answer; otherwise it ends when every shard has given what had changed.
	Follow bool
	Every  time.Duration
	// Timeout bounds a call to the server; 0: 10 s.
	Timeout time.Duration
	// TLS, if not nil, encrypts.
	TLS *secure.TLS
	// TokenFile, if not empty, has the token to bear. It may change.
	TokenFile string
	// Logger gets trouble; nil discards.
	Logger *slog.Logger
}

// maxPush bounds a request, bytes: what servers of gRPC take if nobody has said otherwise, and bytedance/monolith divides by.
const maxPush = 4 << 20

// errOtherReceiver ends a following: the server has not got what it was given before.
var errOtherReceiver = errors.New("the server has not got the rows that it was given before")

// Push gives a server the weights of the rows of a running job that have changed since it was given them last, and of ids whose rows have gone those that training would begin a row with: each at least
// once, whatever dies, as they were when they were read, which may be again. A request is acknowledged to the shards when the server has answered it. Dense parameters are not among them. The job's shards must be
// in processes of their own. With Follow the end of the context is no error. Errors: [pipeline.ErrConfig] for what the user can fix, also where the server refuses for good, [pipeline.ErrUnavailable].
func Push(ctx context.Context, cfg *spec.Config, o PushOptions) (out *result.Pushed, err error) {
	o.Every, o.Timeout = cmp.Or(o.Every, 10*time.Second), cmp.Or(o.Timeout, 10*time.Second)
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("to", o.To, "model", o.Model)
	if err := wire.CheckAddress(o.To); err != nil {
		return nil, fault.Config("job: --to: %w", err)
	}
	conf := wire.ClientConfig{TLS: o.TLS}
	if o.TokenFile != "" {
		if conf.Token, err = tokenIn(o.TokenFile); err != nil {
			return nil, fault.Config("job: --token-file: %w", err)
		}
	}
	cc, err := wire.NewClient(o.To, conf)
	if err != nil {
		return nil, fault.Config("job: --to: %w", err)
	}
	defer func() { err = errors.Join(err, cc.Close()) }()
	certificates, err := watchSecrets(o.Logger, nil, []*secure.TLS{cfg.PS.TLS, o.TLS}, append(tokensOf(&cfg.PS), tokenFiles(o.TokenFile)...))
	if err != nil {
		return nil, err
	}
	defer certificates.Close()
	err = askShards(ctx, cfg, Asking{Logger: o.Logger}, "give them processes of their own (docs/cluster.md), or export its snapshots", func(s remoteShards) error {
		p, err := newPusher(s.layout, tfs.NewPredictionServiceClient(cc), o, log)
		if err != nil {
			return err
		}
		defer p.close()
		out = &p.done
		for {
			if err := p.greet(ctx); err != nil {
				return err
			}
			c := consuming{remoteShards: s, name: p.consumer(), rows: true, follow: o.Follow, every: o.Every, log: log, deal: p.deal, idle: p.stillThere}
			err := c.run(ctx)
			if !errors.Is(err, errOtherReceiver) {
				return err
			}
			log.WarnContext(ctx, "the server has not got the rows that it was given before; it is given all")
			if err := c.leave(ctx); err != nil {
				log.WarnContext(ctx, "the shards keep what has changed for the server as it was, until ps.consumer_idle has passed", "err", err)
			}
		}
	})
	if o.Follow && ctx.Err() != nil {
		err = nil
	}
	return out, err
}

// pusher pushes the rows of a layout.
type pusher struct {
	o      PushOptions
	log    *slog.Logger
	client tfs.PredictionServiceClient
	layout *param.Layout
	names  []string     // of the tables, as the server has them
	order  []int        // of the tables by these names
	absent []*table.Mem // without a row, for what one begins with
	room   int          // bytes of a request for rows
	// source tells what the server has from what it had before it was started again; nil: it does not say.
	source *int64
	done   result.Pushed
}

func newPusher(l *param.Layout, client tfs.PredictionServiceClient, o PushOptions, log *slog.Logger) (*pusher, error) {
	p := &pusher{o: o, log: log, client: client, layout: l.Frozen(), done: result.Pushed{To: o.To, Model: o.Model, Signature: serve.SignatureAssign}}
	if o.Raw != "" {
		p.done.Signature = o.Raw + "/" + serve.SignatureRawAssign
	}
	var known []string
	for t, spec := range p.layout.Tables {
		known = append(known, spec.Name)
		name := cmp.Or(o.Tables[spec.Name], spec.Name)
		if slices.Contains(p.names, name) {
			return nil, fault.Config("job: two tables are called %q by the server", name)
		}
		p.names, p.order = append(p.names, name), append(p.order, t)
	}
	for name := range o.Tables {
		if !slices.Contains(known, name) {
			return nil, fault.Config("job: it has no table %q%s; its tables are %q", name, nearest.Suggest(name, known), known)
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return strings.Compare(p.names[a], p.names[b]) })
	const lengths = 64 + 64 // of the messages within, which grow with the rows, and the snapshot
	p.room = maxPush - lengths - proto.Size(p.request(-1, nil, nil, 0))
	for _, spec := range p.layout.Tables {
		p.absent = append(p.absent, table.New(spec, p.layout.Seed, nil))
	}
	return p, nil
}

func (p *pusher) close() {
	for _, t := range p.absent {
		t.Close()
	}
}

// consumer is the name under which the shards keep what the server has not got.
func (p *pusher) consumer() string {
	name := cmp.Or(p.o.Consumer, "push to "+p.o.To+" "+p.o.Model)
	if p.source != nil {
		name = fmt.Sprintf("%016x %s", uint64(*p.source), name)
	}
	return name[:min(len(name), ps.MaxConsumerName)]
}

// greet pushes no row: what would be refused of rows is refused here, and the server says its source.
func (p *pusher) greet(ctx context.Context) error {
	r, err := p.call(ctx, p.request(-1, nil, nil, 0))
	if err == nil {
		p.source = sourceIn(r)
	}
	return err
}

// stillThere asks a server that says its source whether it still has what it was given: while nothing changes, no other answer would
// say that it was started again. Errors: those of call, and errOtherReceiver.
func (p *pusher) stillThere(ctx context.Context) error {
	if p.source == nil {
		return nil
	}
	r, err := p.call(ctx, p.request(-1, nil, nil, 0))
	if err != nil {
		return err
	}
	return p.sameReceiver(r)
}

// sameReceiver checks the source in an answer. Errors: errOtherReceiver.
func (p *pusher) sameReceiver(r *tfs.PredictResponse) error {
	if is := sourceIn(r); p.source != nil && (is == nil || *is != *p.source) {
		return errOtherReceiver
	}
	return nil
}

// sourceIn is what a server of monolith says in its answer.
func sourceIn(r *tfs.PredictResponse) *int64 {
	if v := r.GetOutputs()[serve.OutputSource].GetInt64Val(); len(v) == 1 {
		return &v[0]
	}
	return nil
}

// deal pushes an answer of a shard.
func (p *pusher) deal(ctx context.Context, shard int, answer *ps.Changes, some bool) error {
	if n := len(answer.Removed); n > 0 {
		first := make([]float32, n*p.layout.Tables[answer.Table].Dim())
		p.absent[answer.Table].Lookup(answer.Removed, first)
		if err := p.push(ctx, answer.Table, answer.Removed, first, answer.Snapshot); err != nil {
			return err
		}
		p.done.Removed += int64(n)
	}
	if err := p.push(ctx, answer.Table, answer.Rows.Keys, answer.Rows.Weights, answer.Snapshot); err != nil {
		return err
	}
	p.done.Rows += int64(len(answer.Rows.Keys))
	if answer.Whole && some {
		p.log.DebugContext(ctx, "a pass was pushed", "shard", shard, "rows", p.done.Rows, "removed", p.done.Removed)
	}
	return nil
}

// push pushes rows of a table, in as many requests as it takes. snapshot is that of the shard's answer.
func (p *pusher) push(ctx context.Context, t int, ids []int64, weights []float32, snapshot uint64) error {
	const id = 10 // bytes of a varint
	dim := p.layout.Tables[t].Dim()
	most := max(1, p.room/(id+4*dim))
	for len(ids) > 0 {
		n := min(most, len(ids))
		r, err := p.call(ctx, p.request(t, ids[:n], weights[:n*dim], snapshot))
		if err != nil {
			return err
		}
		p.done.Requests++
		if err := p.sameReceiver(r); err != nil {
			return err
		}
		ids, weights = ids[n:], weights[n*dim:]
	}
	return nil
}

// request makes a request of rows of a table; below 0: of none. A server that says its source is one of monolith's, and takes the snapshot too.
func (p *pusher) request(t int, ids []int64, weights []float32, snapshot uint64) *tfs.PredictRequest {
	r := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: p.o.Model, SignatureName: p.done.Signature}, Inputs: map[string]*tensorflow.TensorProto{}}
	ints := func(list []int64) *tensorflow.TensorProto {
		return &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shapeOf(len(list)), Int64Val: list}
	}
	floats := func(list []float32, shape ...int) *tensorflow.TensorProto {
		return &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_FLOAT, TensorShape: shapeOf(shape...), FloatVal: list}
	}
	if p.source != nil {
		r.Inputs[serve.InputSnapshot] = &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shapeOf(), Int64Val: []int64{int64(snapshot)}}
	}
	if p.o.Raw != "" {
		splits := make([]int64, len(p.order)+1)
		at := int64(0)
		for i, of := range p.order {
			if of == t {
				at = int64(len(ids))
			}
			splits[i+1] = at
		}
		r.Inputs[serve.InputIDs], r.Inputs[serve.InputIDSplits], r.Inputs[serve.InputFlatValues] = ints(ids), ints(splits), floats(weights, len(weights))
		return r
	}
	for of, name := range p.names { // a SavedModel wants all inputs of its signature
		dim, keys, values := p.layout.Tables[of].Dim(), []int64(nil), []float32(nil)
		if of == t {
			keys, values = ids, weights
		}
		r.Inputs[name+serve.SuffixIDs], r.Inputs[name+serve.SuffixValues] = ints(keys), floats(values, len(keys), dim)
	}
	return r
}

func shapeOf(sizes ...int) *tensorflow.TensorShapeProto {
	out := &tensorflow.TensorShapeProto{}
	for _, n := range sizes {
		out.Dim = append(out.Dim, &tensorflow.TensorShapeProto_Dim{Size: int64(n)})
	}
	return out
}

// call asks the server, again and again where waiting may help and changes are followed.
func (p *pusher) call(ctx context.Context, r *tfs.PredictRequest) (*tfs.PredictResponse, error) {
	for {
		one, cancel := context.WithTimeout(ctx, p.o.Timeout)
		out, err := p.client.Predict(one, r)
		cancel()
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		code := status.Code(err)
		err = fmt.Errorf("job: model %s at %s does not take rows: %s: %s", p.o.Model, p.o.To, code, status.Convert(err).Message())
		switch code {
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted:
			err = fault.Mark(err, pipeline.ErrUnavailable, "")
		case codes.Internal, codes.DataLoss, codes.Unknown:
			return nil, err
		default:
			return nil, fault.Mark(err, pipeline.ErrConfig, "")
		}
		if !p.o.Follow {
			return nil, err
		}
		p.log.WarnContext(ctx, "the server does not take rows; it is asked again", "err", err)
		if !wait(ctx, p.o.Every) {
			return nil, context.Cause(ctx)
		}
	}
}
