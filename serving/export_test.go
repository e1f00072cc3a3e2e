package serving

import (
	"context"
	"errors"

	"google.golang.org/grpc/mem"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// Answer answers a stored request.
func (v *Version) Answer(ctx context.Context, b []byte) error { return v.answerStored(ctx, b) }

// Add keeps a request, and waits for the disk where a server would not.
func (l *RequestLog) Add(p *tfs.PredictionLog) {
	for len(l.queue) == cap(l.queue) {
	}
	l.add(nil, p)
}

// Hold takes a thread until the function that it returns is called.
func (s *Server) Hold() (release func()) {
	s.threads <- struct{}{}
	return func() { <-s.threads }
}

// Waiting is how many requests wait.
func (s *Server) Waiting() int64 { return s.waiting.Load() }

// Calls is how many calls there are.
func (s *Server) Calls() int64 { return s.calls.Load() }

// Taken is how many bytes requests have together.
func (s *Server) Taken() int64 { return s.room.taken.Load() }

// Fill takes bytes of the room, which may be more than there are, until the function that it returns is called.
func (s *Server) Fill(bytes int64) (free func()) {
	s.room.taken.Add(bytes)
	return func() { s.room.taken.Add(-bytes) }
}

// OverWire returns a function that answers a message as gRPC's transport does: it gives the codec the bytes, and gets those of the answer.
func (s *Server) OverWire(message []byte) func(context.Context) error {
	q := newRequests()
	codec, service := newPredictCodec(q), &predictionService{s}
	handler := q.predictDesc().Methods
	in := mem.BufferSlice{mem.SliceBuffer(message)}
	decode := func(v any) error { return codec.Unmarshal(in, v) }
	return func(ctx context.Context) error {
		for i := range handler {
			if handler[i].MethodName != "Predict" {
				continue
			}
			a, err := handler[i].Handler(service, ctx, decode, nil)
			if err != nil {
				return err
			}
			out, err := codec.Marshal(a)
			if err != nil {
				return err
			}
			out.Free()
			return nil
		}
		return errors.New("there is no Predict")
	}
}

// LookupAgain returns a function that reads the rows that a version's last prediction needed.
func (v *Version) LookupAgain() func(context.Context) error {
	r := v.idle[len(v.idle)-1]
	return r.fetch
}

// OnlyOf drops the rows of a push that are not of a part; results are outputs that say how many there are.
func OnlyOf(part native.Part, tables []param.Table, rows *param.Rows, results map[string]int) {
	onlyOf(part, tables, rows, results)
}

// ReadPush reads the inputs of a push to the tables of a model.
func ReadPush(tables []param.Table, signature string, inputs map[string]*tensorflow.TensorProto) (*param.Rows, error) {
	raw, ok := assigns(signature)
	switch {
	case !ok:
		return nil, errors.New("no push")
	case raw:
		rows, _, err := readRawAssigned(tables, inputs)
		return rows, err
	}
	rows, _, err := readAssigned(tables, inputs)
	return rows, err
}

// ParamsOf are the parameters of a version.
func ParamsOf(v *Version) Params { return v.params }
