package serving_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/proto/tensorflow"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/serving"
)

// BenchmarkPush assigns 40,000 rows of 16 weights in requests of so many, over gRPC in this process, to a server of an export that has none of them: "new" to one that was given none before, "changed" to one
// that has others of the same ids, and "changed-again" as the control.
func BenchmarkPush(b *testing.B) {
	const rows, dim = 40_000, 16
	tr := train(b, "{shared_bottom: {dim: 16, hidden: [8]}}", heads)
	for _, per := range []int{1000, rows} {
		requests := func(x *pushed, from float32) (out []map[string]*tensorflow.TensorProto) {
			at := slices.IndexFunc(x.tables, func(s param.Table) bool { return s.Name == "users" })
			other := x.tables[1-at]
			for first := 0; first < rows; first += per {
				ids := make([]int64, per)
				for i := range ids {
					ids[i] = table.Unhash(uint64(first+i) * (^uint64(0) / rows))
				}
				out = append(out, map[string]*tensorflow.TensorProto{
					"users_id": int64s(ids...), "users_value": float32s(ramp(per*dim, from), int64(per), dim),
					other.Name + "_id": int64s(), other.Name + "_value": float32s(nil, 0, int64(other.Dim())),
				})
			}
			return out
		}
		assign := func(x *pushed, list []map[string]*tensorflow.TensorProto) {
			for _, inputs := range list {
				if out, err := x.push(b.Context(), "hashtable_assign", inputs); err != nil || out.Outputs["users_result"].GetIntVal()[0] != int32(per) {
					b.Fatal(out, err)
				}
			}
		}
		rate := func(b *testing.B) { b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s") }
		b.Run(fmt.Sprintf("rows=new/request=%d", per), func(b *testing.B) {
			var list []map[string]*tensorflow.TensorProto
			for b.Loop() {
				b.StopTimer()
				x := newPushed(b, tr, nil, serving.Options{})
				if list == nil {
					list = requests(x, 1)
				}
				b.StartTimer()
				assign(x, list)
			}
			rate(b)
		})
		for _, name := range []string{"changed", "changed-again"} {
			b.Run(fmt.Sprintf("rows=%s/request=%d", name, per), func(b *testing.B) {
				x := newPushed(b, tr, nil, serving.Options{})
				lists := [2][]map[string]*tensorflow.TensorProto{requests(x, 1), requests(x, 2)}
				assign(x, lists[1])
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					assign(x, lists[n%2])
					n++
				}
				rate(b)
			})
		}
	}
}
