package serving

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// request is a call of Predict as the wire has it, and what is made of it. The tensors that clients usually send are read from the message into columns that are used again, and the
// answer is written as it is sent, so that a request costs no memory of its own. Whatever is unusual, and whatever is wrong, goes the way of all messages ([predictionService.Predict]),
// which decides what it means: the fast way only takes what that one reads alike.
type request struct {
	message   []byte // as it came
	model     string
	signature string // as the answer names it
	number    int64
	which     Which
	tensors   []tensorField
	in        Input
	columns   []*Column
	answer    answer
	reply     encoded

	call call
	use  func(*Version, *answer) error
}

// tensorField is an input: a name and a TensorProto in a message.
type tensorField struct{ name, value []byte }

// encoded is an encoded PredictResponse.
type encoded struct {
	of  *request
	buf *[]byte // of mem.DefaultBufferPool, which the transport gives back
}

// requests are those that are not in use. Its methods may overlap.
type requests struct {
	mu   sync.Mutex
	idle []*request
}

func newRequests() *requests { return &requests{} }

// take gives one.
func (q *requests) take() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.idle); n > 0 {
		r := q.idle[n-1]
		q.idle = q.idle[:n-1]
		return r
	}
	r := &request{in: Input{Columns: map[string]*Column{}}}
	r.reply.of = r
	r.call = call{api: "Predict", entry: entryGRPC, input: r.read, into: &r.answer}
	r.use = r.write
	return r
}

// The memory of messages that are larger is not kept for others, and of so many at most.
const (
	maxKept = 256 << 10
	maxIdle = 64
)

// give takes one back.
func (q *requests) give(r *request) {
	if cap(r.message) > maxKept {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.idle) < maxIdle {
		q.idle = append(q.idle, r)
	}
}

// predictCodec is gRPC's codec of messages, which leaves those of Predict as they are.
type predictCodec struct {
	encoding.CodecV2
	requests *requests
}

func newPredictCodec(r *requests) *predictCodec {
	return &predictCodec{encoding.GetCodecV2(encodingproto.Name), r}
}

// Unmarshal implements [encoding.CodecV2].
func (c *predictCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	n := data.Len()
	r.message = slices.Grow(r.message[:0], n)[:n]
	data.CopyTo(r.message)
	return nil
}

// Marshal implements [encoding.CodecV2].
func (c *predictCodec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*encoded)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	out := mem.BufferSlice{mem.NewBuffer(a.buf, mem.DefaultBufferPool())}
	a.buf = nil
	c.requests.give(a.of)
	return out, nil
}

// predictDesc is the description of PredictionService whose Predict takes a request, and whose messages are within the room of all requests.
func (q *requests) predictDesc() *grpc.ServiceDesc {
	desc := tfs.PredictionService_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		handle := desc.Methods[i].Handler
		desc.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
			g := guest{of: &srv.(*predictionService).s.room}
			defer g.leave()
			return handle(srv, ctx, func(v any) error {
				if err := dec(v); err != nil {
					return err
				}
				return g.take(int64(proto.Size(v.(proto.Message))))
			}, between)
		}
		if desc.Methods[i].MethodName == "Predict" {
			desc.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				p, r := srv.(*predictionService), q.take()
				g := guest{of: &p.s.room}
				defer g.leave()
				err := dec(r)
				if err == nil {
					err = g.take(int64(len(r.message)))
				}
				if err != nil {
					q.give(r)
					return nil, err
				}
				return p.predict(ctx, r, q)
			}
		}
	}
	return &desc
}

// predict answers a request.
func (p *predictionService) predict(ctx context.Context, r *request, q *requests) (_ any, err error) {
	defer p.s.caught(tfs.PredictionService_Predict_FullMethodName, &err)
	if !r.split() {
		m, err := r.decode()
		q.give(r) // a message has nothing of what it was decoded from
		if err != nil {
			return nil, err
		}
		return p.Predict(ctx, m)
	}
	r.call.model, r.call.which = r.model, r.which
	if err := p.s.do(ctx, r.call, r.use); err != nil {
		q.give(r)
		return nil, err
	}
	if p.s.o.Log.wants() {
		if m, err := r.decode(); err == nil {
			out := &tfs.PredictResponse{}
			if proto.Unmarshal(*r.reply.buf, out) == nil {
				p.s.o.Log.add(out.ModelSpec, predictLog(m, out))
			}
		}
	}
	return &r.reply, nil
}

// decode is the message as others have it.
func (r *request) decode() (*tfs.PredictRequest, error) {
	m := &tfs.PredictRequest{}
	if err := proto.Unmarshal(r.message, m); err != nil {
		return nil, invalid("the message is no PredictRequest: %v", err)
	}
	return m, nil
}

// errUnusual ends the reading of a message by fields.
var errUnusual = errors.New("unusual")

// fields calls each with the fields of a message, and reports whether it is whole and each agrees.
func fields(b []byte, each func(num protowire.Number, typ protowire.Type, v []byte, n uint64) bool) bool {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		if !each(num, typ, v, n) {
			return errUnusual
		}
		return nil
	}) == nil
}

// same keeps a text, without memory for one that it is already.
func same(to *string, b []byte) bool {
	if *to != string(b) {
		*to = string(b)
	}
	return utf8.Valid(b)
}

// split finds the parts of the message, and reports whether it is a usual one: no push, a model with a number or none, inputs, and each once.
func (r *request) split() bool {
	const bytes, varint = protowire.BytesType, protowire.VarintType
	r.tensors, r.which = r.tensors[:0], Which{}
	spec, named, signed := false, false, false
	ok := fields(r.message, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) bool {
		switch {
		case num == 1 && typ == bytes && !spec:
			spec = true
			return fields(v, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) bool {
				switch {
				case num == 1 && typ == bytes && !named:
					named = true
					return same(&r.model, v)
				case num == 2 && typ == bytes && r.which.Number == nil:
					r.number, r.which.Number = 0, &r.number
					return fields(v, func(num protowire.Number, typ protowire.Type, _ []byte, n uint64) bool {
						r.number = int64(n)
						return num == 1 && typ == varint
					})
				case num == 3 && typ == bytes && !signed && len(v) > 0:
					signed = true
					return same(&r.signature, v)
				}
				return false
			})
		case num == 2 && typ == bytes:
			var t tensorField
			usual := fields(v, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) bool {
				to := &t.name
				if num == 2 {
					to = &t.value
				}
				usual := typ == bytes && (num == 1 || num == 2) && *to == nil
				*to = v
				return usual
			})
			r.tensors = append(r.tensors, t)
			return usual && len(t.name) > 0 && len(t.value) > 0
		}
		return false
	})
	if !signed {
		r.signature = SignatureDefault
	}
	_, push := assigns(r.signature)
	return ok && named && !push
}

// read makes the input of the request.
func (r *request) read(v *Version, l limits) (*Input, error) {
	if r.readColumns(v, l) {
		return &r.in, nil
	}
	m, err := r.decode()
	if err != nil {
		return nil, err
	}
	return v.readTensors(r.signature, m.GetInputs(), l)
}

// readColumns reads the tensors, and reports whether they are usual ones.
func (r *request) readColumns(v *Version, l limits) bool {
	form, err := v.predictForm(r.signature)
	if err != nil || len(r.tensors) == 0 {
		return false
	}
	names := v.in.known
	if form == FormColumns {
		names = v.in.knownRaw
	}
	r.in.Form = form
	clear(r.in.Columns)
	for i, t := range r.tensors {
		name, ok := names[string(t.name)]
		if !ok || r.in.Columns[name] != nil {
			return false
		}
		if i == len(r.columns) {
			r.columns = append(r.columns, &Column{})
		}
		c := r.columns[i]
		rows, ok := c.readTensor(t.value, l.examples)
		if !ok || i > 0 && rows != r.in.Rows {
			return false
		}
		r.in.Rows, r.in.Columns[name] = rows, c
	}
	return true
}

// readTensor reads a TensorProto of integers or floats whose values are all there.
func (c *Column) readTensor(b []byte, most int) (rows int, ok bool) {
	const bytes, varint = protowire.BytesType, protowire.VarintType
	var dtype tensorflow.DataType
	var shape, content, packed []byte
	list := protowire.Number(0)
	if !fields(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) bool {
		switch {
		case num == 1 && typ == varint:
			dtype = tensorflow.DataType(n)
		case num == 2 && typ == bytes && shape == nil && len(v) > 0:
			shape = v
		case num == 3 && typ == varint: // version_number
		case num == 4 && typ == bytes:
			content = v
		case (num == 5 || num == 7 || num == 10) && typ == bytes && list == 0:
			list, packed = num, v
		default:
			return false
		}
		return true
	}) {
		return 0, false
	}
	var dims [2]int64
	rank := 0
	if !fields(shape, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) bool {
		if num != 2 || typ != bytes || rank == len(dims) {
			return false
		}
		rank++
		return fields(v, func(num protowire.Number, typ protowire.Type, _ []byte, n uint64) bool {
			dims[rank-1] = int64(n)
			return num == 1 && typ == varint
		})
	}) || rank == 0 {
		return 0, false
	}
	width := int64(1)
	if rank == 2 {
		width = dims[1]
	}
	if dims[0] < 0 || dims[0] > int64(most) || width < 0 || width > maxElements || dims[0]*width > maxElements {
		return 0, false
	}
	rows = int(dims[0])
	n := rows * int(width)
	c.Offsets = slices.Grow(c.Offsets[:0], rows+1)[:rows+1]
	for i := range c.Offsets {
		c.Offsets[i] = int32(int64(i) * width)
	}
	c.Ints, c.Floats, c.Texts = c.Ints[:0], c.Floats[:0], nil
	switch {
	case dtype == tensorflow.DataType_DT_INT64 && list == 0 && len(content) == 8*n && n > 0:
		c.Type = Ints
		c.Ints = slices.Grow(c.Ints, n)
		for ; len(content) > 0; content = content[8:] {
			c.Ints = append(c.Ints, int64(binary.LittleEndian.Uint64(content)))
		}
	case dtype == tensorflow.DataType_DT_INT64 && list == 10 && content == nil:
		c.Type = Ints
		return rows, c.readInts(packed, n, func(x uint64) int64 { return int64(x) })
	case dtype == tensorflow.DataType_DT_INT32 && list == 7 && content == nil:
		c.Type = Ints
		return rows, c.readInts(packed, n, func(x uint64) int64 { return int64(int32(x)) })
	case dtype == tensorflow.DataType_DT_FLOAT && len(content)+len(packed) == 4*n && n > 0 && (list == 0 || list == 5 && content == nil):
		c.Type = Floats
		c.Floats = slices.Grow(c.Floats, n)
		for _, from := range [2][]byte{content, packed} {
			for ; len(from) > 0; from = from[4:] {
				c.Floats = append(c.Floats, math.Float32frombits(binary.LittleEndian.Uint32(from)))
			}
		}
	default:
		return 0, false
	}
	return rows, true
}

// readInts reads n packed varints.
func (c *Column) readInts(b []byte, n int, convert func(uint64) int64) bool {
	c.Ints = slices.Grow(c.Ints, n)
	for len(b) > 0 && len(c.Ints) < n {
		x, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return false
		}
		c.Ints = append(c.Ints, convert(x))
		b = b[size:]
	}
	return len(b) == 0 && len(c.Ints) == n && n > 0
}

// write encodes the answer.
func (r *request) write(v *Version, a *answer) error {
	size := 64 + len(r.model) + len(r.signature)
	for i, h := range v.heads {
		size += 64 + len(h.Name) + 4*len(a.heads[i])
	}
	r.reply.buf = mem.DefaultBufferPool().Get(size)
	b := (*r.reply.buf)[:0]
	for i, h := range v.heads {
		b = appendOutput(b, h.Name, a.rows, h.Width, a.heads[i])
	}
	number := protowire.SizeTag(1) + protowire.SizeVarint(uint64(a.version))
	if a.version == 0 {
		number = 0
	}
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(fieldSize(len(r.model))+fieldSize(number)+fieldSize(len(r.signature))))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), r.model)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(number))
	if number > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(a.version))
	}
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), r.signature)
	*r.reply.buf = b
	return nil
}

// fieldSize is that of a field of so many bytes, below number 16.
func fieldSize(n int) int { return protowire.SizeTag(1) + protowire.SizeBytes(n) }

// appendOutput appends an entry of PredictResponse.outputs: the predictions of a head.
func appendOutput(b []byte, name string, rows, width int, values []float32) []byte {
	dim := func(n int) int { return protowire.SizeTag(1) + protowire.SizeVarint(uint64(n)) }
	shape := fieldSize(dim(rows)) + fieldSize(dim(width))
	tensor := dim(int(tensorflow.DataType_DT_FLOAT)) + fieldSize(shape) + fieldSize(4*len(values))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(fieldSize(len(name))+fieldSize(tensor)))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(tensor))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(tensorflow.DataType_DT_FLOAT))
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(shape))
	for _, n := range [2]int{rows, width} {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(dim(n)))
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(n))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.BytesType), uint64(4*len(values)))
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
