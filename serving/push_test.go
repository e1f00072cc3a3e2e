package serving_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/replica"
	"github.com/monolith-go/monolith/serving"
)

// pushable is an export that takes rows, as a server has it.
type pushable struct{ *replica.Pushed }

func (p pushable) Reader() serving.Reader { return p.Pushed.Reader() }
func (p pushable) Inherit(from serving.Pushable) error {
	return p.Pushed.Inherit(from.(pushable).Pushed)
}

func takesPushes(m *table.Memory) func(*native.Export) serving.Pushable {
	return func(e *native.Export) serving.Pushable { return pushable{replica.NewPushed(e, m)} }
}

// pushed is a server of the model clicks to which rows are pushed.
type pushed struct {
	t      testing.TB
	tr     *trained
	models *serving.Models
	client tfs.PredictionServiceClient
	tables []param.Table
}

// newPushed trains and serves; nil memory has no limit.
func newPushed(t testing.TB, tr *trained, memory *table.Memory, o serving.Options) *pushed {
	t.Helper()
	x := &pushed{t: t, tr: tr}
	x.models = serving.NewModels(serving.ModelsOptions{Recipe: recipe, Push: takesPushes(memory), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(x.models.Close)
	if err := x.models.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		t.Fatal(err)
	}
	o.Models = x.models
	x.client = tfs.NewPredictionServiceClient(dial(t, serving.NewServer(o), serving.GRPCOptions{}))
	v, _, done, err := x.models.Use("clicks", serving.Which{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	x.tables = v.Model().Graph.Layout().Tables
	return x
}

// predict asks about the examples.
func (x *pushed) predict() (click []float32) {
	x.t.Helper()
	examples := &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_STRING, StringVal: forms(x.tr.asked)["tf.Example"].Records}
	examples.TensorShape = shape(int64(len(examples.StringVal)))
	out, err := x.client.Predict(x.t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{"examples": examples}})
	if err != nil {
		x.t.Fatal(err)
	}
	return out.Outputs["click"].FloatVal
}

// rowsOf are the rows of ids of a table of the newest version.
func (x *pushed) rowsOf(tbl int, ids []int64) []float32 {
	x.t.Helper()
	v, _, done, err := x.models.Use("clicks", serving.Which{})
	if err != nil {
		x.t.Fatal(err)
	}
	defer done()
	r := serving.ParamsOf(v).Reader()
	rows := param.Rows{Keys: make([][]int64, len(x.tables)), Values: make([][]float32, len(x.tables))}
	rows.Keys[tbl], rows.Values[tbl] = ids, make([]float32, len(ids)*x.tables[tbl].Dim())
	r.Hold()
	defer r.Release()
	if err := r.Lookup(x.t.Context(), &rows); err != nil {
		x.t.Fatal(err)
	}
	return rows.Values[tbl]
}

func int64s(list ...int64) *tensorflow.TensorProto {
	return &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(int64(len(list))), Int64Val: list}
}

func float32s(list []float32, sizes ...int64) *tensorflow.TensorProto {
	return &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_FLOAT, TensorShape: shape(sizes...), FloatVal: list}
}

// ramp are n numbers that no training makes.
func ramp(n int, from float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = from + float32(i)/8
	}
	return out
}

func (x *pushed) push(ctx context.Context, signature string, inputs map[string]*tensorflow.TensorProto) (*tfs.PredictResponse, error) {
	return x.client.Predict(ctx, &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: signature}, Inputs: inputs})
}

// TestPush pushes rows as a ParameterSyncClient does, whose messages are written out here, in both forms: they are what is read then, bit for bit, and predictions of other examples are as before.
func TestPush(t *testing.T) {
	t.Parallel()
	tr := train(t, "{shared_bottom: {dim: 4, hidden: [8]}}", heads)
	dir := tr.export(t)
	x := newPushed(t, tr, nil, serving.Options{})
	before := x.predict()
	if !slices.Equal(before, tr.want["prediction_click"]) {
		t.Fatal("before a push predictions are not those of the evaluation")
	}
	users := slices.IndexFunc(x.tables, func(s param.Table) bool { return s.Name == "users" })
	other := 1 - users
	name, dim := x.tables[other].Name, x.tables[users].Dim()
	if len(x.tables) != 2 || x.tables[other].Dim() != 4 || dim != 4 {
		t.Fatalf("%+v", x.tables)
	}

	first := hashed(tr.asked[1].User)
	var r tfs.PredictRequest
	if err := prototext.Unmarshal(fmt.Appendf(nil, `
model_spec { name: "clicks" signature_name: "hashtable_assign" }
inputs { key: "users_id" value { dtype: DT_INT64 tensor_shape { dim { size: 2 } } int64_val: [%d, %d] } }
inputs { key: "users_value" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 4 } } float_val: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.1] } }
inputs { key: "%s_id" value { dtype: DT_INT64 tensor_shape { dim { size: 1 } } int64_val: [%d] } }
inputs { key: "%s_value" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } dim { size: 4 } } float_val: [-1.0, 0.25, 1e-30, 0.0] } }`,
		fidOf(1, first), fidOf(1, 12345), name, fidOf(2, tr.asked[1].Item), name), &r); err != nil {
		t.Fatal(err)
	}
	out, err := x.client.Predict(t.Context(), &r)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := out.Outputs["users_result"], out.Outputs[name+"_result"]; len(out.Outputs) != 3 || a.GetDtype() != tensorflow.DataType_DT_INT32 || a.GetIntVal()[0] != 2 || b.GetIntVal()[0] != 1 || len(a.TensorShape.Dim) != 0 {
		t.Errorf("the answer is %v", out)
	}
	if got := x.rowsOf(users, []int64{fidOf(1, first), fidOf(1, 12345)}); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6, 7, .1}) {
		t.Errorf("the rows are %v", got)
	}
	if got := x.rowsOf(other, []int64{fidOf(2, tr.asked[1].Item)}); !slices.Equal(got, []float32{-1, .25, 1e-30, 0}) {
		t.Errorf("the row is %v", got)
	}
	after := x.predict()
	for i, a := range tr.asked {
		concerned := a.User == tr.asked[1].User || a.Item == tr.asked[1].Item
		if concerned != (after[i] != before[i]) {
			t.Errorf("example %d of user %s and item %d: %v, before %v", i, a.User, a.Item, after[i], before[i])
		}
	}

	// The raw form, whose tables are in the order of their names, with numbers as bytes, and the first row as it was.
	base := exportedRow(t, dir, users, fidOf(1, first))
	ids, values := []int64{fidOf(2, 5), fidOf(1, first)}, slices.Concat(ramp(4, 9), base)
	if name > "users" {
		ids, values = []int64{fidOf(1, first), fidOf(2, 5)}, slices.Concat(base, ramp(4, 9))
	}
	content := float32s(nil, 8)
	for _, v := range values {
		content.TensorContent = binary.LittleEndian.AppendUint32(content.TensorContent, math.Float32bits(v))
	}
	source := out.Outputs[serving.OutputSource].GetInt64Val()
	out, err = x.push(t.Context(), "MonolithMultiHashTable_x/raw_assign", map[string]*tensorflow.TensorProto{"id": int64s(ids...), "id_split": int64s(0, 1, 2), "flat_value": content})
	if err != nil || out.Outputs["result"].GetIntVal()[0] != 2 || !slices.Equal(out.Outputs[serving.OutputSource].GetInt64Val(), source) || len(source) != 1 {
		t.Fatalf("%v: %v", out, err)
	}
	if got := x.rowsOf(users, []int64{fidOf(1, first), fidOf(1, 12345)}); !slices.Equal(got, slices.Concat(base, []float32{5, 6, 7, .1})) {
		t.Errorf("the rows are %v", got)
	}
	if got := x.rowsOf(other, []int64{fidOf(2, 5)}); !slices.Equal(got, ramp(4, 9)) {
		t.Errorf("the row is %v", got)
	}
}

// exportedRow is the row of an id as an export has it.
func exportedRow(t *testing.T, dir string, tbl int, id int64) []float32 {
	t.Helper()
	e, err := native.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // read only
	out := make([]float32, e.Model().Graph.Layout().Tables[tbl].Dim())
	if _, err := e.Find(tbl, []int64{id}, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// badPushes are inputs that are refused, by what is said; each is changed from good ones of the tables a, of 2 weights, and b, of 1.
func badPushes() map[string]func(assign, raw map[string]*tensorflow.TensorProto) {
	return map[string]func(assign, raw map[string]*tensorflow.TensorProto){
		`no input; it has b_id, b_value, a_id, a_value`:                        func(a, _ map[string]*tensorflow.TensorProto) { clear(a) },
		`an input "c_id" of no table, did you mean`:                            func(a, _ map[string]*tensorflow.TensorProto) { a["c_id"] = a["a_id"] },
		`has no input "a_value"`:                                               func(a, _ map[string]*tensorflow.TensorProto) { delete(a, "a_value") },
		`has no input "b_id"`:                                                  func(a, _ map[string]*tensorflow.TensorProto) { delete(a, "b_id") },
		`"a_id" has the type DT_INT32, must be DT_INT64`:                       func(a, _ map[string]*tensorflow.TensorProto) { a["a_id"].Dtype = tensorflow.DataType_DT_INT32 },
		`"a_value" has the type DT_DOUBLE, must be DT_FLOAT`:                   func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].Dtype = tensorflow.DataType_DT_DOUBLE },
		`"a_id" has the shape [2, 1], must have one of 1 dimensions`:           func(a, _ map[string]*tensorflow.TensorProto) { a["a_id"].TensorShape = shape(2, 1) },
		`"a_value" has the shape [4], must have one of 2 dimensions`:           func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].TensorShape = shape(4) },
		`"b_value" has the shape []`:                                           func(a, _ map[string]*tensorflow.TensorProto) { a["b_value"].TensorShape = nil },
		`"a_value" has the shape [2 1], must be [2, 2]: "a_id" has 2 ids`:      func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"] = float32s(ramp(2, 0), 2, 1) },
		`"b_value" has the shape [1 1], must be [2, 1]`:                        func(a, _ map[string]*tensorflow.TensorProto) { a["b_id"] = int64s(1, 2) },
		`"a_id" has 2 values in its list, its shape says [3]`:                  func(a, _ map[string]*tensorflow.TensorProto) { a["a_id"].TensorShape = shape(3) },
		`"a_value" has 1 values in its list, its shape says [2 2]`:             func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].FloatVal = []float32{7} }, // one may stand for all elsewhere
		`"a_value" has 3 values in tensor_content`:                             func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].TensorContent = make([]byte, 12) },
		`"a_value" has 13 bytes of tensor_content`:                             func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].TensorContent = make([]byte, 13) },
		`"a_id" has the size -1 in dimension 0`:                                func(a, _ map[string]*tensorflow.TensorProto) { a["a_id"].TensorShape = shape(-1) },
		`"a_value" has the size 4611686018427387904 in dimension 1`:            func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].TensorShape = shape(4, 1<<62) },
		`table "a": id 1 is there twice`:                                       func(a, _ map[string]*tensorflow.TensorProto) { a["a_id"] = int64s(1, 1) },
		`table "a": weight 1 of the row of id 2 is NaN`:                        func(a, _ map[string]*tensorflow.TensorProto) { a["a_value"].FloatVal[3] = float32(math.NaN()) },
		`table "b": weight 0 of the row of id 3 is -Inf`:                       func(a, _ map[string]*tensorflow.TensorProto) { a["b_value"].FloatVal[0] = float32(math.Inf(-1)) },
		`has no input "id"`:                                                    func(_, r map[string]*tensorflow.TensorProto) { delete(r, "id") },
		`has no input "flat_value"`:                                            func(_, r map[string]*tensorflow.TensorProto) { delete(r, "flat_value") },
		`an input "ids", did you mean "id"?; it must have id, id_split, flat_`: func(_, r map[string]*tensorflow.TensorProto) { r["ids"] = r["id"] },
		`"id_split" has 2 numbers, must have 3: the model has 2 tables`:        func(_, r map[string]*tensorflow.TensorProto) { r["id_split"] = int64s(0, 3) },
		`"id_split" must rise from 0 to 3`:                                     func(_, r map[string]*tensorflow.TensorProto) { r["id_split"] = int64s(0, 4, 3) },
		`must rise from 0 to 3, the number of ids`:                             func(_, r map[string]*tensorflow.TensorProto) { r["id_split"] = int64s(-1, 2, 3) },
		`must rise from 0 to 3, the`:                                           func(_, r map[string]*tensorflow.TensorProto) { r["id_split"] = int64s(0, 2, math.MaxInt64) },
		`has 4 weights, which end within those of table "b": 1 rows of 1`:      func(_, r map[string]*tensorflow.TensorProto) { r["flat_value"] = float32s(ramp(4, 0), 4) },
		`has 6 weights, and the rows of all tables have 5`:                     func(_, r map[string]*tensorflow.TensorProto) { r["flat_value"] = float32s(ramp(6, 0), 6) },
		`table "a": weight 0 of the row of id 1 is +Inf`:                       func(_, r map[string]*tensorflow.TensorProto) { r["flat_value"].FloatVal[0] = float32(math.Inf(1)) },
	}
}

// pushTables are the tables of badPushes, not in the order of their names.
func pushTables() []param.Table {
	return []param.Table{
		{Name: "b", Segments: []param.Segment{{Name: "x", Dim: 1, Optimizer: optim.SGD{}}}},
		{Name: "a", Segments: []param.Segment{{Name: "x", Dim: 1, Optimizer: optim.SGD{}}, {Name: "y", Dim: 1, Optimizer: optim.SGD{}}}},
	}
}

// goodPush are rows of these tables in both forms.
func goodPush() (assign, raw map[string]*tensorflow.TensorProto) {
	return map[string]*tensorflow.TensorProto{"a_id": int64s(1, 2), "a_value": float32s(ramp(4, 0), 2, 2), "b_id": int64s(3), "b_value": float32s(ramp(1, 2), 1, 1)},
		map[string]*tensorflow.TensorProto{"id": int64s(1, 2, 3), "id_split": int64s(0, 2, 3), "flat_value": float32s([]float32{0, .125, .25, .375, 2}, 5)}
}

// TestReadPush: both forms of rows are read alike, and what is wrong is said.
func TestReadPush(t *testing.T) {
	t.Parallel()
	assign, raw := goodPush()
	for signature, inputs := range map[string]map[string]*tensorflow.TensorProto{"hashtable_assign": assign, "raw_assign": raw, "x/raw_assign": raw} {
		got, err := serving.ReadPush(pushTables(), signature, inputs)
		if err != nil || !slices.EqualFunc(got.Keys, [][]int64{{3}, {1, 2}}, slices.Equal) || !slices.EqualFunc(got.Values, [][]float32{{2}, {0, .125, .25, .375}}, slices.Equal) {
			t.Errorf("%s: %+v: %v", signature, got, err)
		}
	}
	delete(assign, "b_id")
	delete(assign, "b_value")
	assign["a_id"], assign["a_value"] = int64s(), float32s(nil, 0, 2)
	if got, err := serving.ReadPush(pushTables(), "hashtable_assign", assign); err != nil || len(got.Keys[0])+len(got.Keys[1]) != 0 {
		t.Errorf("no rows of one table: %+v: %v", got, err)
	}
	for says, change := range badPushes() {
		assign, raw := goodPush()
		change(assign, raw)
		_, err := serving.ReadPush(pushTables(), "hashtable_assign", assign)
		if _, rawErr := serving.ReadPush(pushTables(), "raw_assign", raw); err == nil {
			err = rawErr
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), says) {
			t.Errorf("%v; want one that says %q", err, says)
		}
	}
}

// FuzzPush: whatever a message has, it is refused, or is distinct ids with as many finite weights as their tables have, which another reading of the message finds too.
func FuzzPush(f *testing.F) {
	add := func(signature string, inputs map[string]*tensorflow.TensorProto) {
		b, err := proto.Marshal(&tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{SignatureName: signature}, Inputs: inputs})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, change := range badPushes() {
		for _, change := range []func(_, _ map[string]*tensorflow.TensorProto){change, func(_, _ map[string]*tensorflow.TensorProto) {}} {
			assign, raw := goodPush()
			change(assign, raw)
			add("hashtable_assign", assign)
			add("t/raw_assign", raw)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var r tfs.PredictRequest
		if proto.Unmarshal(message, &r) != nil {
			return
		}
		rows, err := serving.ReadPush(pushTables(), r.GetModelSpec().GetSignatureName(), r.GetInputs())
		if err != nil {
			return
		}
		total := 0
		for tbl, spec := range pushTables() {
			if len(rows.Values[tbl]) != spec.Dim()*len(rows.Keys[tbl]) {
				t.Fatalf("table %d: %d weights of %d rows", tbl, len(rows.Values[tbl]), len(rows.Keys[tbl]))
			}
			if ids := slices.Clone(rows.Keys[tbl]); len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
				t.Fatalf("table %d has %v", tbl, ids)
			}
			for _, w := range rows.Values[tbl] {
				if w-w != 0 {
					t.Fatalf("table %d has %v", tbl, rows.Values[tbl])
				}
			}
			total += len(rows.Keys[tbl])
		}
		listed := 0
		for name, x := range r.Inputs {
			switch {
			case !strings.HasSuffix(name, "id"):
			case len(x.TensorContent) > 0:
				listed += len(x.TensorContent) / 8
			default:
				listed += len(x.Int64Val)
			}
		}
		if total != listed {
			t.Fatalf("%d rows of %d ids", total, listed)
		}
		whole := map[int]map[int64][]float32{} // by table and id
		for tbl, spec := range pushTables() {
			whole[tbl] = map[int64][]float32{}
			for i, id := range rows.Keys[tbl] {
				whole[tbl][id] = slices.Clone(rows.Values[tbl][i*spec.Dim():][:spec.Dim()])
			}
		}
		for part := (native.Part{Of: 3}); part.Index < part.Of; part.Index++ {
			rows, err := serving.ReadPush(pushTables(), r.GetModelSpec().GetSignatureName(), proto.CloneOf(&r).GetInputs())
			if err != nil {
				t.Fatal(err)
			}
			results := map[string]int{"result": total, "b_result": len(rows.Keys[0])}
			serving.OnlyOf(part, pushTables(), rows, results)
			if len(rows.Keys[0]) != results["b_result"] || len(rows.Keys[0])+len(rows.Keys[1]) != results["result"] {
				t.Fatalf("%v of %v", results, rows.Keys)
			}
			for tbl, spec := range pushTables() {
				for i, id := range rows.Keys[tbl] {
					if native.PartOf(id, part.Of) != part.Index || !slices.Equal(rows.Values[tbl][i*spec.Dim():][:spec.Dim()], whole[tbl][id]) {
						t.Fatalf("shard %s takes %d of table %d: %v", part, id, tbl, rows.Values[tbl])
					}
					delete(whole[tbl], id)
				}
			}
		}
		if len(whole[0])+len(whole[1]) > 0 {
			t.Fatalf("no shard takes %v", whole)
		}
	})
}

// TestPushRefused: who may not push does not, and what cannot be pushed to says so; predictions stay.
func TestPushRefused(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	dir := tr.export(t)
	number := int64(0)
	if _, err := fmt.Sscan(filepath.Base(dir), &number); err != nil {
		t.Fatal(err)
	}
	read, push := secure.Rule{Right: secure.Read, Token: secure.Fixed("r")}, secure.Rule{Right: secure.Train, Token: secure.Fixed("p")}
	x := newPushed(t, tr, table.NewMemory(table.MemoryOptions{Limit: 1 << 20, Of: "the test's limit"}),
		serving.Options{Guard: secure.NewGuard([]secure.Rule{read, push}), Pushers: secure.NewGuard([]secure.Rule{push})})
	if err := x.models.Expect("live"); err != nil {
		t.Fatal(err)
	}
	spec := x.tables[0]
	rows := func(n int) map[string]*tensorflow.TensorProto {
		ids := int64s(make([]int64, n)...)
		for i := range ids.Int64Val {
			ids.Int64Val[i] = fidOf(1, int64(i))
		}
		return map[string]*tensorflow.TensorProto{spec.Name + "_id": ids, spec.Name + "_value": float32s(ramp(n*spec.Dim(), 1), int64(n), int64(spec.Dim()))}
	}
	request := func(model string, n int) *tfs.PredictRequest {
		return &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: model, SignatureName: serving.SignatureAssign}, Inputs: rows(n)}
	}
	other := request("clicks", 1)
	other.ModelSpec.VersionChoice = &tfs.ModelSpec_Version{Version: &tfs.Int64Value{Value: number + 1}}
	this := request("clicks", 1)
	this.ModelSpec.VersionChoice = &tfs.ModelSpec_Version{Version: &tfs.Int64Value{Value: number}}
	filtered := request("clicks", 1)
	filtered.OutputFilter = []string{"click"}
	wrong := request("clicks", 1)
	wrong.Inputs[spec.Name+"_id"].Dtype = tensorflow.DataType_DT_STRING
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	for _, c := range []struct {
		what, token string
		r           *tfs.PredictRequest
		code        codes.Code
		says        string
	}{
		{"no token", "", request("clicks", 1), codes.Unauthenticated, "token"},
		{"another token", "x", request("clicks", 1), codes.Unauthenticated, "token"},
		{"the token of who may ask", "r", request("clicks", 1), codes.PermissionDenied, "--push-token-file"},
		{"another model", "p", request("click", 1), codes.NotFound, `did you mean "clicks"`},
		{"a running job", "p", request("live", 1), codes.FailedPrecondition, "follows a running job"},
		{"another version", "p", other, codes.NotFound, "is not served"},
		{"a wrong type", "p", wrong, codes.InvalidArgument, "DT_STRING"},
		{"an output that is not there", "p", filtered, codes.InvalidArgument, `no output "click"`},
		{"too many rows", "p", request("clicks", 100_000), codes.ResourceExhausted, "raise --pushed-bytes"},
		{"rows", "p", request("clicks", 1), codes.OK, ""},
		{"rows of a version", "p", this, codes.OK, ""},
	} {
		if _, err := x.client.Predict(with(c.token), c.r); status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) {
			t.Errorf("%s: %v, want %s that says %q", c.what, err, c.code, c.says)
		}
		if got := x.rowsOf(0, []int64{fidOf(1, 0)})[0]; (got == 1) != (c.code == codes.OK) {
			t.Errorf("%s: the row is %v", c.what, got)
		}
	}
	closed := tfs.NewPredictionServiceClient(dial(t, serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})}), serving.GRPCOptions{}))
	if _, err := closed.Predict(t.Context(), request("clicks", 1)); status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "--accept-pushes") {
		t.Errorf("a server that takes none: %v", err)
	}
}

// TestPushSignatures: a server that takes pushes says how; others do not.
func TestPushSignatures(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	tr.export(t)
	x := newPushed(t, tr, nil, serving.Options{})
	signatures := func(client tfs.PredictionServiceClient) map[string]*tensorflow.SignatureDef {
		r, err := client.GetModelMetadata(t.Context(), &tfs.GetModelMetadataRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, MetadataField: []string{"signature_def"}})
		if err != nil {
			t.Fatal(err)
		}
		var defs tfs.SignatureDefMap
		if err := proto.Unmarshal(r.Metadata["signature_def"].Value, &defs); err != nil {
			t.Fatal(err)
		}
		return defs.SignatureDef
	}
	defs := signatures(x.client)
	if s := defs["hashtable_assign"]; len(s.GetInputs()) != 2*len(x.tables) || len(s.GetOutputs()) != len(x.tables)+1 || len(s.Inputs["users_value"].GetTensorShape().GetDim()) != 2 {
		t.Errorf("hashtable_assign: %v", s)
	}
	if s := defs["raw_assign"]; !slices.Equal(slices.Sorted(maps.Keys(s.GetInputs())), []string{"flat_value", "id", "id_split"}) {
		t.Errorf("raw_assign: %v", s)
	}
	plain := signatures(tfs.NewPredictionServiceClient(dial(t, serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})}), serving.GRPCOptions{})))
	if len(plain) != len(defs)-2 || plain["hashtable_assign"] != nil {
		t.Errorf("without pushes: %v", slices.Sorted(maps.Keys(plain)))
	}
}

// TestPushWhileVersionsChange: rows are pushed while newer versions come: each that was pushed is read of the newest, also if it came to the one before just when that was replaced.
func TestPushWhileVersionsChange(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	dir := tr.export(t)
	x := newPushed(t, tr, nil, serving.Options{})
	stop, done := make(chan struct{}), make(chan int64)
	source := int64(0)
	go func() {
		n := int64(0)
		defer func() { done <- n }()
		for ; ; n++ {
			out, err := x.push(t.Context(), serving.SignatureAssign, map[string]*tensorflow.TensorProto{
				"users_id": int64s(fidOf(1, 1000+n)), "users_value": float32s([]float32{float32(n) + .5}, 1, 1),
			})
			if err != nil {
				t.Error(err)
				return
			}
			if is := out.Outputs[serving.OutputSource].Int64Val[0]; n == 0 {
				source = is
			} else if is != source {
				t.Errorf("push %d: the source is another", n)
			}
			select {
			case <-stop:
				n++
				return
			default:
			}
		}
	}()
	for i := range 5 { // the same snapshot under higher numbers
		next := filepath.Join(tr.exports, fmt.Sprint(1000+i))
		if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := x.models.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	n := <-done
	for i := range n {
		if got := x.rowsOf(slices.IndexFunc(x.tables, func(s param.Table) bool { return s.Name == "users" }), []int64{fidOf(1, 1000+i)})[0]; got != float32(i)+.5 {
			t.Errorf("row %d of %d is %v", i, n, got)
		}
	}
}

// slowPush is an export whose first push waits, in the middle.
type slowPush struct {
	pushable

	begun, inherits chan struct{}
	end             <-chan struct{}
	order           func(what string)
}

func (p *slowPush) Assign(rows *param.Rows, snapshot uint64) error {
	close(p.begun)
	<-p.end
	err := p.pushable.Assign(rows, snapshot)
	p.order("pushed")
	return err
}

func (p *slowPush) Inherit(from serving.Pushable) error {
	p.order("inherited")
	close(p.inherits)
	return p.pushable.Inherit(from.(*slowPush).pushable)
}

// TestNewVersionWaitsForPushes: a version that comes while rows are pushed to the one before takes them over once they are there.
func TestNewVersionWaitsForPushes(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	dir := tr.export(t)
	begun, inherits, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var order []string
	models := serving.NewModels(serving.ModelsOptions{
		Recipe: recipe, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Push: func(e *native.Export) serving.Pushable {
			return &slowPush{pushable{replica.NewPushed(e, nil)}, begun, inherits, end, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what)
			}}
		},
	})
	t.Cleanup(models.Close)
	if err := models.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		t.Fatal(err)
	}
	client := tfs.NewPredictionServiceClient(dial(t, serving.NewServer(serving.Options{Models: models}), serving.GRPCOptions{}))
	done := make(chan error, 2)
	go func() {
		_, err := client.Predict(t.Context(), &tfs.PredictRequest{
			ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: serving.SignatureAssign},
			Inputs:    map[string]*tensorflow.TensorProto{"users_id": int64s(fidOf(1, 1000)), "users_value": float32s([]float32{.5}, 1, 1)},
		})
		done <- err
	}()
	<-begun
	if err := os.CopyFS(filepath.Join(tr.exports, "1000"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	go func() { done <- models.Refresh(t.Context()) }()
	select { // it cannot be seen waiting; it would not wait for that long
	case <-inherits:
	case <-time.After(time.Second):
	}
	close(end)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, []string{"pushed", "inherited"}) {
		t.Errorf("the order was %v", order)
	}
}
