package serving

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// The signatures by which rows are pushed, as the parameter servers of bytedance/monolith ask for them (ParameterSyncClient: PushRequests are sent as PredictRequests). Shapes are [n] of ids, which are
// DT_INT64, and [n, dim] or [sum of n·dim] of weights, which are DT_FLOAT. Outputs are DT_INT32 without a dimension: how many rows were assigned.
const (
	// SignatureAssign has two inputs for each table, TABLE_id and TABLE_value; a table may be missing. The outputs are TABLE_result.
	SignatureAssign = "hashtable_assign"
	// SignatureRawAssign, also with a name and / before it, has the ids of all tables one after the other, in the order of the tables' names, in the input [InputIDs], where those of each begin and the last end in
	// [InputIDSplits], [tables+1], and the weights of all in [InputFlatValues]. The output is "result".
	SignatureRawAssign = "raw_assign"
)

// The inputs of [SignatureRawAssign].
const (
	InputIDs        = "id"
	InputIDSplits   = "id_split"
	InputFlatValues = "flat_value"
)

// The ends of the inputs of a table of [SignatureAssign].
const (
	SuffixIDs    = "_id"
	SuffixValues = "_value"
	suffixResult = "_result"
)

// outputResult is the output of [SignatureRawAssign].
const outputResult = "result"

// InputSnapshot is an input that a push of either signature may have beside the rows: DT_INT64 without a dimension. It is the newest
// snapshot for which training had begun a cut when the rows were read. An export of a later snapshot holds these rows, or newer ones,
// so it drops them. Without this input the server cannot order the rows: they stay until they are pushed again, or an export equals them.
const InputSnapshot = "snapshot"

// OutputSource is an output of all pushes: [Pushable].Source, DT_INT64 without a dimension.
const OutputSource = "source"

// Pushable are the parameters of an export of which rows are assigned while it is served.
type Pushable interface {
	Params
	// Manifest is the checksum of the export's manifest.
	Manifest() uint32
	// Source is the same number as long as every row that was assigned under it is read, or is in the export.
	Source() int64
	// Assign makes rows of the tables what they are from now on, all of them or, with an error, none; they belong to the receiver. An
	// export of a snapshot with a higher number than snapshot holds them, or newer ones.
	Assign(rows *param.Rows, snapshot uint64) error
	// Inherit takes over what was assigned to the version before, as far as it is not in this one, and with it the Source.
	Inherit(from Pushable) error
	// Rows is how many rows are not those of the export.
	Rows() int64
}

// assigns reports whether a signature is one by which rows are pushed, and whether it is the raw one.
func assigns(signature string) (raw, ok bool) {
	raw = signature == SignatureRawAssign || strings.HasSuffix(signature, "/"+SignatureRawAssign)
	return raw, raw || signature == SignatureAssign
}

// mayPush refuses callers who may not push. Errors: PERMISSION_DENIED, UNAVAILABLE.
func (s *Server) mayPush(ctx context.Context) error {
	if s.models.o.Push == nil {
		return status.Error(codes.PermissionDenied, "rows are not pushed to this server; one that is started with --accept-pushes takes them")
	}
	if s.o.Pushers == nil {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	switch _, err := s.o.Pushers.Admit(caller(ctx, md)); {
	case errors.Is(err, secure.ErrNoToken), errors.Is(err, secure.ErrToken), errors.Is(err, secure.ErrName):
		return status.Error(codes.PermissionDenied, "the caller may not push rows: that takes the token of --push-token-file, as authorization: Bearer TOKEN")
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// caller is what a caller shows: the token that it bears and its verified certificate.
func caller(ctx context.Context, md metadata.MD) (token string, cert *x509.Certificate) {
	if got := md.Get("authorization"); len(got) > 0 {
		token, _ = strings.CutPrefix(got[0], "Bearer ")
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			cert = info.State.VerifiedChains[0][0]
		}
	}
	return token, cert
}

// assign answers a push: a request to predict of a signature that assigns. Errors: PERMISSION_DENIED, INVALID_ARGUMENT, NOT_FOUND; FAILED_PRECONDITION for a model that takes no rows; RESOURCE_EXHAUSTED
// where memory is used up or too many wait; UNAVAILABLE.
func (p *predictionService) assign(ctx context.Context, r *tfs.PredictRequest, raw bool) (out *tfs.PredictResponse, err error) {
	if err := p.s.mayPush(ctx); err != nil {
		return nil, err
	}
	if err := p.s.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.s.threads }()
	m := r.GetModelSpec()
	err = p.s.models.push(m.GetName(), whichOf(m), func(h *held, to Pushable) (err error) {
		n := 0
		defer func() { p.s.o.Metrics.pushed(h.model, n, to.Rows(), status.Code(err)) }()
		tables := to.Model().Graph.Layout().Tables
		inputs := maps.Clone(r.GetInputs())
		snapshot, err := readSnapshot(inputs)
		if err != nil {
			return err
		}
		read := readAssigned
		if raw {
			read = readRawAssigned
		}
		rows, results, err := read(tables, inputs)
		if err != nil {
			return err
		}
		for _, name := range r.GetOutputFilter() {
			if _, ok := results[name]; !ok && name != OutputSource {
				return invalid("the push has no output %q; it has %s", name, strings.Join(slices.Sorted(maps.Keys(results)), ", "))
			}
		}
		if part := p.s.models.o.Part; part != nil {
			onlyOf(*part, tables, rows, results)
		}
		for _, keys := range rows.Keys {
			n += len(keys)
		}
		if err := to.Assign(rows, snapshot); err != nil {
			n = 0
			if failure.Of(err) == failure.Full {
				return status.Errorf(codes.ResourceExhausted, "the rows that were pushed and are not in the export take all the memory that they may: %v; serve a newer export, or raise --pushed-bytes", err)
			}
			return asStatus(err)
		}
		out = &tfs.PredictResponse{ModelSpec: specOf(m, h.number, m.GetSignatureName()), Outputs: map[string]*tensorflow.TensorProto{}}
		has := func(name string) bool {
			return len(r.GetOutputFilter()) == 0 || slices.Contains(r.GetOutputFilter(), name)
		}
		for name, rows := range results {
			if has(name) {
				out.Outputs[name] = &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT32, TensorShape: shapeOf(), IntVal: []int32{int32(rows)}}
			}
		}
		if has(OutputSource) {
			out.Outputs[OutputSource] = &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shapeOf(), Int64Val: []int64{to.Source()}}
		}
		return nil
	})
	return out, err
}

// readSnapshot takes [InputSnapshot] out of the inputs: [math.MaxInt64], which is above all snapshots, where it is not among them. Errors: INVALID_ARGUMENT.
func readSnapshot(inputs map[string]*tensorflow.TensorProto) (uint64, error) {
	t := inputs[InputSnapshot]
	if t == nil {
		return math.MaxInt64, nil
	}
	delete(inputs, InputSnapshot)
	list, shape, err := assignedInts(InputSnapshot, t, 0)
	switch {
	case err != nil:
		return 0, err
	case len(list) != 1 || list[0] < 0:
		return 0, invalid("input %q has the values %v in the shape %v, must have one number of a snapshot, 0 or more", InputSnapshot, list, shape)
	}
	return uint64(list[0]), nil
}

// readAssigned reads the inputs of [SignatureAssign]; results is how many rows each output says. Errors: INVALID_ARGUMENT.
func readAssigned(tables []param.Table, inputs map[string]*tensorflow.TensorProto) (rows *param.Rows, results map[string]int, err error) {
	rows, results = &param.Rows{Keys: make([][]int64, len(tables)), Values: make([][]float32, len(tables))}, map[string]int{}
	var names []string
	for t := range tables {
		name, dim := tables[t].Name, tables[t].Dim()
		names = append(names, name+SuffixIDs, name+SuffixValues)
		ids, values := inputs[name+SuffixIDs], inputs[name+SuffixValues]
		if ids == nil && values == nil {
			continue
		}
		keys, n, err := assignedIDs(name+SuffixIDs, ids)
		if err != nil {
			return nil, nil, err
		}
		weights, shape, err := assignedValues(name+SuffixValues, values, 2)
		if err != nil {
			return nil, nil, err
		}
		if shape[0] != n || shape[1] != dim {
			return nil, nil, invalid("input %q has the shape %v, must be [%d, %d]: %q has %d ids, and rows of table %q have %d weights", name+SuffixValues, shape, n, dim, name+SuffixIDs, n, name, dim)
		}
		if err := checkAssigned(name, dim, keys, weights); err != nil {
			return nil, nil, err
		}
		rows.Keys[t], rows.Values[t], results[name+suffixResult] = keys, weights, n
	}
	if len(results) == 0 && len(inputs) == 0 {
		return nil, nil, invalid("the push has no input; it has %s", strings.Join(names, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !slices.Contains(names, name) {
			return nil, nil, invalid("the push has an input %q of no table%s; it may have %s", name, nearest.Suggest(name, names), strings.Join(names, ", "))
		}
	}
	return rows, results, nil
}

// readRawAssigned reads the inputs of [SignatureRawAssign]. Errors: INVALID_ARGUMENT.
func readRawAssigned(tables []param.Table, inputs map[string]*tensorflow.TensorProto) (rows *param.Rows, results map[string]int, err error) {
	want := []string{InputIDs, InputIDSplits, InputFlatValues}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !slices.Contains(want, name) {
			return nil, nil, invalid("the push has an input %q%s; it must have %s", name, nearest.Suggest(name, want), strings.Join(want, ", "))
		}
	}
	ids, _, err := assignedIDs(InputIDs, inputs[InputIDs])
	if err != nil {
		return nil, nil, err
	}
	splits, n, err := assignedIDs(InputIDSplits, inputs[InputIDSplits])
	if err != nil {
		return nil, nil, err
	}
	values, shape, err := assignedValues(InputFlatValues, inputs[InputFlatValues], 1)
	if err != nil {
		return nil, nil, err
	}
	if n != len(tables)+1 {
		return nil, nil, invalid("input %q has %d numbers, must have %d: the model has %d tables", InputIDSplits, n, len(tables)+1, len(tables))
	}
	if splits[0] != 0 || splits[n-1] != int64(len(ids)) || !slices.IsSorted(splits) {
		return nil, nil, invalid("input %q must rise from 0 to %d, the number of ids", InputIDSplits, len(ids))
	}
	rows = &param.Rows{Keys: make([][]int64, len(tables)), Values: make([][]float32, len(tables))}
	at := 0
	for i, t := range byName(tables) {
		dim, keys := tables[t].Dim(), ids[splits[i]:splits[i+1]]
		if at+dim*len(keys) > len(values) {
			return nil, nil, invalid("input %q has %d weights, which end within those of table %q: %d rows of %d", InputFlatValues, shape[0], tables[t].Name, len(keys), dim)
		}
		weights := values[at : at+dim*len(keys)]
		if err := checkAssigned(tables[t].Name, dim, keys, weights); err != nil {
			return nil, nil, err
		}
		rows.Keys[t], rows.Values[t] = keys, weights
		at += len(weights)
	}
	if at != len(values) {
		return nil, nil, invalid("input %q has %d weights, and the rows of all tables have %d", InputFlatValues, shape[0], at)
	}
	return rows, map[string]int{outputResult: len(ids)}, nil
}

// onlyOf drops the rows that other row shards have, so that who pushes may tell each of them all, and counts the others again.
func onlyOf(part native.Part, tables []param.Table, rows *param.Rows, results map[string]int) {
	all := 0
	for t, keys := range rows.Keys {
		dim, n := tables[t].Dim(), 0
		for i, k := range keys {
			if native.PartOf(k, part.Of) == part.Index {
				keys[n] = k
				copy(rows.Values[t][n*dim:][:dim], rows.Values[t][i*dim:][:dim])
				n++
			}
		}
		rows.Keys[t], rows.Values[t] = keys[:n], rows.Values[t][:n*dim]
		if name := tables[t].Name + suffixResult; keys != nil {
			if _, ok := results[name]; ok {
				results[name] = n
			}
		}
		all += n
	}
	if _, ok := results[outputResult]; ok {
		results[outputResult] = all
	}
}

// byName are the numbers of tables in the order of their names.
func byName(tables []param.Table) []int {
	out := make([]int, len(tables))
	for t := range out {
		out[t] = t
	}
	slices.SortFunc(out, func(a, b int) int { return strings.Compare(tables[a].Name, tables[b].Name) })
	return out
}

// checkAssigned refuses ids that are there twice and weights that are not finite.
func checkAssigned(name string, dim int, keys []int64, weights []float32) error {
	sorted := slices.Sorted(slices.Values(keys))
	for i := range sorted {
		if i > 0 && sorted[i] == sorted[i-1] {
			return invalid("table %q: id %d is there twice", name, sorted[i])
		}
	}
	for i, w := range weights {
		if x := float64(w); math.IsNaN(x) || math.IsInf(x, 0) {
			return invalid("table %q: weight %d of the row of id %d is %v; rows have finite numbers", name, i%dim, keys[i/dim], w)
		}
	}
	return nil
}

// assignedIDs reads integers of shape [n].
func assignedIDs(name string, t *tensorflow.TensorProto) (ids []int64, n int, err error) {
	ids, shape, err := assignedInts(name, t, 1)
	if err != nil {
		return nil, 0, err
	}
	return ids, shape[0], nil
}

// assignedInts reads integers of so many dimensions.
func assignedInts(name string, t *tensorflow.TensorProto, dims int) (list []int64, shape []int, err error) {
	shape, size, err := assignedShape(name, t, tensorflow.DataType_DT_INT64, 8, len(t.GetInt64Val()), dims)
	if err != nil {
		return nil, nil, err
	}
	if c := t.GetTensorContent(); len(c) > 0 {
		list, err = values(name, size, c, nil, 8, littleInt64, func(x int64) int64 { return x })
		return list, shape, err
	}
	return t.GetInt64Val(), shape, nil
}

// assignedValues reads floats of so many dimensions.
func assignedValues(name string, t *tensorflow.TensorProto, dims int) (list []float32, shape []int, err error) {
	shape, size, err := assignedShape(name, t, tensorflow.DataType_DT_FLOAT, 4, len(t.GetFloatVal()), dims)
	if err != nil {
		return nil, nil, err
	}
	if c := t.GetTensorContent(); len(c) > 0 {
		list, err = values(name, size, c, nil, 4, littleFloat32, func(x float32) float32 { return x })
		return list, shape, err
	}
	return t.GetFloatVal(), shape, nil
}

// assignedShape checks a tensor of a push: its type, its number of dimensions, and that each value is there, in its content of so many bytes each or in its list of so many. size is how many there are.
func assignedShape(name string, t *tensorflow.TensorProto, dtype tensorflow.DataType, bytes, listed, dims int) (shape []int, size int, err error) {
	if t == nil {
		return nil, 0, invalid("the push has no input %q", name)
	}
	if t.GetDtype() != dtype {
		return nil, 0, invalid("input %q has the type %s, must be %s", name, t.GetDtype(), dtype)
	}
	of := t.GetTensorShape().GetDim()
	if t.GetTensorShape().GetUnknownRank() || len(of) != dims {
		return nil, 0, invalid("input %q has %s, must have one of %d dimensions", name, shapeText(t.GetTensorShape()), dims)
	}
	size = 1
	for i, d := range of {
		n := d.GetSize()
		if n < 0 || n > maxElements || int64(size)*n > maxElements {
			return nil, 0, invalid("input %q has the size %d in dimension %d of its shape; %d values are the most", name, n, i, maxElements)
		}
		shape, size = append(shape, int(n)), size*int(n)
	}
	has, in := listed, "its list"
	if c := t.GetTensorContent(); len(c) > 0 {
		if has, in = len(c)/bytes, "tensor_content"; len(c)%bytes != 0 {
			return nil, 0, invalid("input %q has %d bytes of tensor_content, which are no values of %d", name, len(c), bytes)
		}
	}
	if has != size {
		return nil, 0, invalid("input %q has %d values in %s, its shape says %v", name, has, in, shape)
	}
	return shape, size, nil
}

// push calls assign with the version of a model that a request names, while no other version comes to serve: a row that is pushed is in all that come later. Errors: as Use; FAILED_PRECONDITION.
func (m *Models) push(name string, which Which, assign func(*held, Pushable) error) error {
	m.mu.Lock()
	s, err := m.find(name)
	live := err == nil && s.live()
	m.mu.Unlock()
	switch {
	case err != nil:
		return err
	case live:
		return refuse(codes.FailedPrecondition, "model %q follows a running job, whose shards say what its rows are; rows are pushed to a server of its exports", name)
	}
	s.pushing.Lock()
	defer s.pushing.Unlock()
	h, err := m.use(name, which)
	if err != nil {
		return err
	}
	defer m.release(h)
	to, ok := h.version.params.(Pushable)
	if !ok {
		return fmt.Errorf("serving: version %d of model %s takes no rows", h.number, name) // all are opened by one way
	}
	return assign(h, to)
}

// inherit gives a version that is about to serve the rows that were pushed to the one before. Nothing is pushed meanwhile.
func (m *Models) inherit(name string, number int64, v *Version) {
	to, ok := v.params.(Pushable)
	if !ok {
		return
	}
	h, err := m.use(name, Which{})
	if err != nil || h.number > number { // the first one, or an older one beside it
		if err == nil {
			m.release(h)
		}
		return
	}
	defer m.release(h)
	if err := to.Inherit(h.version.params.(Pushable)); err != nil {
		m.log.Warn("a version has not got all rows that were pushed to the one before; who pushes is told to begin again", "model", name, "version", number, "err", err)
	}
}
