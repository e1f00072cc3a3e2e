package pstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// The table of testFloat64: a bias that SGD trains, and a vector that Adagrad does.
const (
	f64Dim  = 9
	f64LR   = 0.1
	f64Acc  = 0.1
	f64L2   = 0.01
	f64Clip = 0.5
)

func float64Layout(values optim.ValueType, r param.Retention) *param.Layout {
	return &param.Layout{Seed: 3, Retention: r, Tables: []param.Table{{Name: "t", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Init: param.Constant(0.25), Optimizer: optim.SGD{LR: f64LR}, Clip: f64Clip},
		{Name: "vec", Dim: f64Dim, Init: param.Uniform(-1, 1), Optimizer: optim.Stored(optim.Adagrad{LR: f64LR, InitialAccumulator: f64Acc}, values), L2: f64L2},
	}}}}
}

// float64Row is a row of a [float64Map]. bound is by how much a weight that is stored may differ.
type float64Row struct {
	w, bound [1 + f64Dim]float64
	n        [f64Dim]float64
	time     int64
	count    uint64
}

// float64Map is what a cluster holds, as a plain map that computes in float64 and decides by looking at everything. It shares no code with tables and rules, but the initial values
// and the hash of fids, which are part of what is promised.
type float64Map struct {
	layout     *param.Layout
	values     optim.ValueType
	rows       map[int64]*float64Row
	waiting    map[int64]*float64Row
	now, began int64
}

// ulp is by how much storing w may change it: to the next number up or down.
func (m *float64Map) ulp(w float64) float64 {
	switch m.values {
	case optim.BF16:
		return math.Abs(w)/(1<<7) + 1e-37
	case optim.FP16:
		return math.Abs(w)/(1<<10) + 1./(1<<24)
	}
	return (math.Abs(w) + f64LR) / (1 << 21) // of the operations of a step
}

func (m *float64Map) fresh(k int64) *float64Row {
	r := &float64Row{}
	at := 0
	for _, s := range m.layout.Tables[0].Segments {
		v := make([]float32, s.Dim)
		s.Init.Fill(v, m.layout.Seed, param.HashName("t", s.Name), uint64(k))
		for i, x := range v {
			r.w[at+i], r.bound[at+i] = float64(x), m.ulp(float64(x))
		}
		at += s.Dim
	}
	for i := range r.n {
		r.n[i] = f64Acc
	}
	return r
}

// gone removes what has expired.
func (m *float64Map) gone() {
	for _, of := range []map[int64]*float64Row{m.rows, m.waiting} {
		for k, r := range of {
			if after := m.layout.Retention.Of(param.SlotOf(k)).Expire; after > 0 && m.now-max(r.time, m.began) >= after {
				delete(of, k)
			}
		}
	}
}

// admits decides on a fid without a row; old are those that had one before the update, of which keys are.
func (m *float64Map) admits(k int64, op param.Op, count uint32, time int64, keys []int64, old map[int64]bool, parts map[uint64][]int64) bool {
	rules := &m.layout.Retention
	if least := rules.Of(param.SlotOf(k)).Occurrences; op == param.Train && least > 0 {
		r := m.waiting[k]
		if r == nil {
			r = &float64Row{}
		}
		if r.count < uint64(least) {
			r.count, r.time = r.count+uint64(count), max(r.time, time)
			m.waiting[k] = r
			return false
		}
	}
	part := table.Hash(k) >> 52 // of one row each
	if in := parts[part]; rules.MaxBytes > 0 && len(in) > 0 {
		if rules.Full == param.FullRefuse || !old[in[0]] || slices.Contains(keys, in[0]) {
			return false
		}
		delete(m.rows, in[0])
		delete(old, in[0])
	}
	parts[part] = []int64{k}
	delete(m.waiting, k)
	return true
}

// apply applies an update: op of values to keys.
func (m *float64Map) apply(op param.Op, keys []int64, counts []uint32, values []float32, time int64, lr float32) {
	if m.layout.Retention.Default == (param.SlotRetention{}) && m.layout.Retention.Slots == nil && m.layout.Retention.MaxBytes == 0 {
		m.now = 0 // nobody asks for the time
	}
	if time == 0 {
		time = m.now
	}
	m.gone()
	old, parts := map[int64]bool{}, map[uint64][]int64{}
	for k := range m.rows {
		old[k] = true
		parts[table.Hash(k)>>52] = []int64{k}
	}
	width := m.layout.Tables[0].Width(op)
	for i, k := range keys {
		r := m.rows[k]
		if r == nil {
			if !m.admits(k, op, counts[i], time, keys, old, parts) {
				continue
			}
			r = m.fresh(k)
		}
		v := values[i*width : (i+1)*width]
		switch op {
		case param.Train:
			r.train(m, v, float64(lr))
		case param.Reinitialize:
			r = m.fresh(k)
		case param.Assign, param.AssignAdd:
			for j, x := range v {
				if op == param.Assign {
					r.w[j], r.bound[j] = 0, 0
				}
				r.w[j] += float64(x)
				r.bound[j] += m.ulp(r.w[j])
			}
		}
		r.count, r.time = r.count+uint64(counts[i]), max(r.time, time)
		m.rows[k] = r
	}
	m.now = max(m.now, time)
	if m.began == 0 {
		m.began = m.now
	}
	m.gone()
}

// train is a step of both rules.
func (r *float64Row) train(m *float64Map, g []float32, lr float64) {
	b := float64(g[0])
	r.w[0] -= f64LR * lr * min(max(b, -f64Clip), f64Clip) // a norm of one number
	for i := range r.n {
		x := float64(g[1+i]) + f64L2*r.w[1+i]
		r.n[i] += x * x
		r.w[1+i] -= f64LR * lr * x / math.Sqrt(r.n[i])
	}
	for i := range r.w {
		r.bound[i] = 1.01*r.bound[i] + m.ulp(r.w[i]) // what a weight is wrong by is in its L2 term too
	}
}

// compare compares the rows of keys, and returns the difference; "": there is none. Where weights are kept in 16 bits, which are drawn, the map continues from those that are there, so that
// each step is looked at alone.
func (m *float64Map) compare(ctx context.Context, c Cluster, keys []int64) (string, error) {
	var got table.Rows
	if err := c.Entries(ctx, 0, keys, &got); err != nil {
		return "", err
	}
	at := map[int64]int{}
	for i, k := range got.Keys {
		at[k] = i
	}
	for _, k := range keys {
		i, ok := at[k]
		want := m.rows[k]
		if ok != (want != nil) {
			return fmt.Sprintf("fid %d has a row: %v, want %v", k, ok, want != nil), nil
		}
		if !ok {
			continue
		}
		if got.Times[i] != want.time || got.Counts[i] != want.count {
			return fmt.Sprintf("fid %d: time %d and %d occurrences, want %d and %d", k, got.Times[i], got.Counts[i], want.time, want.count), nil
		}
		for j, w := range got.Weights[i*len(want.w):][:len(want.w)] {
			if d := math.Abs(float64(w) - want.w[j]); !(d <= want.bound[j]) {
				return fmt.Sprintf("fid %d, weight %d: %v, want %v ± %v", k, j, w, want.w[j], want.bound[j]), nil
			}
			if m.values != optim.FP32 {
				want.w[j], want.bound[j] = float64(w), 0
			}
		}
	}
	return "", nil
}

// testFloat64 trains and edits rows at random, on clusters of one to five shards that are stored and opened again as others between, and compares every row that was touched, and in the end all,
// with a plain map in float64.
func (s suite) testFloat64(t *testing.T) {
	t.Parallel()
	slots := map[int]param.SlotRetention{1: {Expire: 40, Occurrences: 2}, 2: {}}
	for name, rules := range map[string]param.Retention{
		"all":    {},
		"expiry": {Default: param.SlotRetention{Expire: 25}, Slots: slots, Admission: param.AdmitExact},
		"oldest": {MaxBytes: 1, Full: param.FullOldest, Default: param.SlotRetention{Expire: 90}},
		"rarest": {MaxBytes: 1, Full: param.FullRarest, Slots: slots, Admission: param.AdmitExact},
		"refuse": {MaxBytes: 1, Full: param.FullRefuse, Default: param.SlotRetention{Expire: 60}},
	} {
		for _, values := range []optim.ValueType{optim.FP32, optim.BF16, optim.FP16} {
			t.Run(fmt.Sprint(name, ", ", values), func(t *testing.T) {
				t.Parallel()
				s.testFloat64Of(t, float64Layout(values, rules), values)
			})
		}
	}
}

func (s suite) testFloat64Of(t *testing.T, l *param.Layout, values optim.ValueType) {
	t.Helper()
	ctx, r := t.Context(), rand.New(rand.NewPCG(uint64(len(l.Retention.Full)+10*int(values)), 64))
	want := &float64Map{layout: l, values: values, rows: map[int64]*float64Row{}, waiting: map[int64]*float64Row{}}
	dir, now := t.TempDir(), int64(1000)
	var all []int64
	for slot := range int64(3) {
		for id := range int64(1000) {
			all = append(all, slot<<48|id)
		}
	}
	at := map[string]int64{}
	least := 0 // rows that there were
	check := func(c Cluster, keys []int64) {
		t.Helper()
		if diff, err := want.compare(ctx, c, keys); err != nil || diff != "" {
			t.Fatal(diff, err)
		}
	}
	lives := 5
	if testing.Short() {
		lives = 2
	}
	for life := range lives {
		c, err := s.open(ctx, coordinator.Options{Layout: l, NumShards: 1 + r.IntN(5), Dir: dir, Incremental: life % 2 * 12})
		if err != nil {
			t.Fatal(err)
		}
		check(c, all)
		cl := client(t, c, "w")
		if _, err := cl.Resume(ctx, "s", []string{"x", "y"}); err != nil {
			t.Fatal(err)
		}
		e, err := cl.Edit(ctx, "e")
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			now += r.Int64N(6)
			keys := make([]int64, 0, 200)
			for _, i := range r.Perm(len(all))[:1+r.IntN(199)] {
				keys = append(keys, all[i/(1+r.IntN(8))]) // some come often
			}
			slices.Sort(keys)
			keys = slices.Compact(keys)
			r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			counts, op := make([]uint32, len(keys)), param.Train
			if r.IntN(6) == 0 {
				op = []param.Op{param.Assign, param.AssignAdd, param.Reinitialize}[r.IntN(3)]
			}
			v := make([]float32, len(keys)*l.Tables[0].Width(op))
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			if op == param.Train {
				for i := range counts {
					counts[i] = 1 + r.Uint32N(3)
				}
				split := []string{"x", "y"}[r.IntN(2)]
				u := &param.Update{
					Source: "s", Split: split, From: at[split], To: at[split] + 7, NumRows: 7, Time: now - r.Int64N(4), LR: r.Float32(),
					Keys: [][]int64{keys}, Counts: [][]uint32{counts}, Grads: [][]float32{v},
				}
				at[split] = u.To
				if err := errors.Join(cl.Push(ctx, u), cl.Flush(ctx)); err != nil {
					t.Fatal(err)
				}
				want.apply(op, keys, counts, v, u.Time, u.LR)
			} else {
				if err := e.Apply(ctx, op, 0, keys, v); err != nil {
					t.Fatal(err)
				}
				want.apply(op, keys, counts, v, 0, 1)
			}
			least = max(least, len(want.rows))
			check(c, keys)
		}
		check(c, all)
		if got := statRows(t, c); got < int64(len(want.rows)) {
			t.Errorf("%d rows, want %d", got, len(want.rows))
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		take(t, c, ps.SnapshotOptions{})
		if err := c.Close(context.WithoutCancel(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if least < 100 {
		t.Errorf("%d rows at most: too few to mean anything", least)
	}
}

// statRows is how many rows a cluster counts, those that have expired and take memory still included.
func statRows(t *testing.T, c Cluster) int64 {
	t.Helper()
	st, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Rows()
}
