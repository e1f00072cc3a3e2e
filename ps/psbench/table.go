package psbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

const (
	// tableRows is the size of the table where none is asked for.
	tableRows = 16 << 20
	// tableBatch is how many keys a call has.
	tableBatch = 4096
	// numQueries is how many lookups there are before they begin again.
	numQueries = 4 << 20
	zipfS      = 1.05
)

// Table measures lookups and updates of a table with rows of dim 16, copied out, beside other tables, by one core: millions of rows
// per second of processor time. The C++ programs are built for it, where there is a compiler and what they need.
func Table(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = tableRows
	}
	dir, err := os.MkdirTemp(o.Dir, "monolith-bench-")
	if err != nil {
		return nil, fmt.Errorf("psbench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := tableBench{o: o, dir: dir}
	for _, f := range []func(context.Context) error{b.lookups, b.updates, b.growth, b.collector} {
		if err := f(ctx); err != nil {
			return b.results, err
		}
	}
	return b.results, nil
}

// tableBench is one run.
type tableBench struct {
	o       bench.Options
	dir     string
	built   bool // the C++ programs
	results []bench.Result
}

// wants reports whether a comparison was asked for, by its full name.
func (b *tableBench) wants(name string) bool { return b.o.Wants("table " + name) }

// lookups compares lookups with known addresses, and with other tables.
func (b *tableBench) lookups(ctx context.Context) (err error) {
	others := []struct{ name, program, way string }{
		{"known addresses", "array", "known"},
		{"array in order", "array", "gather"},
		{"torch", "torch", "gather"},
		{"abseil", "abseil", "lookup"},
		{"libcuckoo", "libcuckoo", "lookup"},
		{"go map", "", ""},
		{"two threads", "", ""},
	}
	var t *table.Mem
	defer func() {
		if t != nil {
			t.Close()
		}
	}()
	for _, dist := range []string{"uniform", "zipf"} {
		var ids []uint32
		for _, other := range others {
			name := "lookup " + dist + ", " + other.name
			if !b.wants(name) {
				continue
			}
			if t == nil {
				t = filled(optim.SGD{}, b.o.Rows)
			}
			path := filepath.Join(b.dir, dist)
			if ids == nil {
				ids = queries(dist, b.o.Rows)
				if err := writeQueries(path, ids); err != nil {
					return err
				}
			}
			if err := b.lookup(ctx, t, name, other.name, other.program, other.way, ids, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *tableBench) lookup(ctx context.Context, t *table.Mem, name, other, program, way string, ids []uint32, path string) (err error) {
	ours := lookupCandidate("table", t, keysOf(ids))
	clock := bench.CPUSeconds
	var theirs bench.Candidate
	var tw *twin
	full := fmt.Sprintf("table %s, %d rows", name, b.o.Rows)
	switch {
	case program == "torch":
		var absent string
		if tw, absent, err = startTorch(ctx, b.o, b.dir, path); err != nil {
			return err
		}
		if tw == nil {
			r, err := bench.Compare(ctx, b.o, full, "M rows/cpu-s", clock, ours)
			r.Absent = map[string]string{"torch": absent}
			b.results = append(b.results, r)
			return err
		}
	case program != "":
		if !b.built {
			if err := buildTwins(ctx, b.dir); err != nil {
				return err
			}
			b.built = true
		}
		if tw, err = startTwin(ctx, filepath.Join(b.dir, program), b.o.Rows, path); tw == nil || err != nil {
			return err
		}
	case other == "go map":
		m, free := goMap(b.o.Rows)
		defer free()
		theirs = m.candidate(keysOf(ids))
	default: // two threads: the rate of each
		theirs, ours = ours, twoThreads(t, ids)
		theirs.Name = "one thread"
	}
	if tw != nil {
		defer func() { err = errors.Join(err, tw.close()) }()
		theirs = tw.candidate(other, way, 128*tableBatch)
		clock = func() float64 { return bench.CPUSeconds() + tw.cpu }
	}
	r, err := bench.Compare(ctx, b.o, full, "M rows/cpu-s", clock, ours, theirs)
	b.results = append(b.results, r)
	return err
}

// updates compares updates with Adagrad, of rows that have its state, with lookups in the same table.
func (b *tableBench) updates(ctx context.Context) error {
	for _, dist := range []string{"uniform", "zipf"} {
		name := "adagrad " + dist + ", lookups"
		if !b.wants(name) {
			continue
		}
		t := filled(optim.Adagrad{}, b.o.Rows)
		keys := keysOf(queries(dist, b.o.Rows))
		u := table.Update{LR: 1, Counts: make([]uint32, tableBatch), Grads: make([]float32, tableBatch*dim)}
		for i := range u.Grads {
			u.Grads[i] = float32(i%7) * .001
		}
		at := 0
		ours := bench.Candidate{Name: "table", Run: func() (float64, error) {
			for range 16 {
				u.Keys = keys[at:][:tableBatch]
				t.Apply(u)
				at = (at + tableBatch) % len(keys)
			}
			return 16 * tableBatch / 1e6, nil
		}}
		r, err := bench.Compare(ctx, b.o, fmt.Sprintf("table %s, %d rows", name, b.o.Rows), "M rows/cpu-s", bench.CPUSeconds, ours,
			lookupCandidate("lookups", t, keys))
		t.Close()
		b.results = append(b.results, r)
		if err != nil {
			return err
		}
	}
	return nil
}

// growth measures what inserts wait while a table grows from a 64th of its size, 64 at a time under a lock that a reader shares.
func (b *tableBench) growth(ctx context.Context) error {
	if !b.wants("growth") {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first := b.o.Rows / 64
	t := filled(optim.Adagrad{}, first)
	defer t.Close()
	var mu sync.RWMutex
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { // a shard's reader, as often as not waiting for its worker
		r := rand.New(rand.NewPCG(3, 4))
		keys, dst := make([]int64, 512), make([]float32, 512*dim)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i := range keys {
				keys[i] = keyOf(uint32(r.IntN(first)))
			}
			mu.RLock()
			t.Lookup(keys, dst)
			mu.RUnlock()
		}
	})
	const n = 64
	u := table.Update{LR: 1, Keys: make([]int64, n), Counts: make([]uint32, n), Grads: make([]float32, n*dim)}
	var spent, waited, index []float64
	var err error
	begin := threadSeconds()
	for at := first; at+n <= b.o.Rows; at += n {
		for i := range u.Keys {
			u.Keys[i] = keyOf(uint32(at + i))
		}
		wall := time.Now()
		mu.Lock()
		from := threadSeconds()
		t.Apply(u)
		to := threadSeconds()
		mu.Unlock()
		spent, waited = append(spent, 1e3*(to-from)), append(waited, 1e3*time.Since(wall).Seconds())
		if len(spent)%1024 == 1 {
			index = append(index, float64(t.IndexBytes())/float64(t.Len()))
		}
		if at%(1<<16) == 0 {
			if err = context.Cause(ctx); err != nil {
				break
			}
		}
	}
	total := threadSeconds() - begin
	close(stop)
	readers.Wait()
	if err != nil || len(spent) == 0 {
		return err
	}
	rows := float64(n * len(spent))
	for _, times := range []struct {
		what string
		of   []float64
	}{{"cpu", spent}, {"clock", waited}} {
		slices.Sort(times.of)
		b.add("growth, 64 inserts, p50, "+times.what, times.of[len(times.of)/2], "ms")
		b.add("growth, 64 inserts, p99.99, "+times.what, times.of[len(times.of)*9999/10000], "ms")
		b.add("growth, 64 inserts, longest, "+times.what, times.of[len(times.of)-1], "ms")
	}
	b.add("growth, inserts", rows/total/1e6, "M rows/cpu-s")
	b.add("growth, index", float64(t.IndexBytes())/float64(t.Len()), "bytes a row")
	mean := 0.0
	for _, x := range index {
		mean += x / float64(len(index))
	}
	b.add("growth, index, mean over sizes", mean, "bytes a row")
	b.add("growth, index, most", slices.Max(index), "bytes a row")
	return nil
}

// collector measures the garbage collector beside a table that is looked up, with a collection every 100 ms: what it takes for b.o.Rows rows
// against what it takes for a few, before and after.
func (b *tableBench) collector(ctx context.Context) error {
	if !b.wants("gc") {
		return nil
	}
	const few = 1 << 10
	var share, stop [3]float64
	var size int64
	for i, rows := range []int{few, b.o.Rows, few} {
		t := filled(optim.Adagrad{}, rows)
		if i == 1 {
			size = t.Bytes()
		}
		var err error
		share[i], stop[i], err = b.collected(ctx, t, rows)
		t.Close()
		if err != nil {
			return err
		}
	}
	for _, r := range []struct {
		what, unit string
		of         [3]float64
	}{{fmt.Sprintf("gc, share of cpu, %.1f GiB", float64(size)/(1<<30)), "%", share}, {"gc, stop of the world, p99", "ms", stop}} {
		without := (r.of[0] + r.of[2]) / 2
		b.results = append(b.results, bench.Result{
			Name: b.name(r.what), Unit: r.unit, Ours: r.of[1], Theirs: map[string]float64{fmt.Sprintf("%d rows", few): without}, Ratio: r.of[1] / without,
			Control: r.of[2] / r.of[0], Machine: bench.Machine(),
		})
	}
	return nil
}

// collected returns the share of the processors' time that the collector takes, without what it does on processors that nobody else wants, and
// the 99th percentile of how long it stops the world, ms.
func (b *tableBench) collected(ctx context.Context, t *table.Mem, rows int) (share, stop float64, err error) {
	lookup := lookupCandidate("", t, keysOf(queries("uniform", rows)))
	samples := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/user:cpu-seconds"},
		{Name: "/sched/pauses/total/gc:seconds"},
	}
	read := func() (gc, user float64, pauses *metrics.Float64Histogram) {
		runtime.GC()
		metrics.Read(samples)
		return samples[0].Value.Float64() - samples[1].Value.Float64(), samples[2].Value.Float64(), samples[3].Value.Float64Histogram()
	}
	gc, user, h := read()
	before := slices.Clone(h.Counts)
	begin := time.Now()
	for collected := begin; time.Since(begin) < time.Duration(b.o.Rounds)*b.o.Each; {
		if _, err := lookup.Run(); err != nil {
			return 0, 0, err
		}
		if time.Since(collected) > 100*time.Millisecond {
			runtime.GC()
			collected = time.Now()
		}
		if err := context.Cause(ctx); err != nil {
			return 0, 0, err
		}
	}
	gc2, user2, h := read()
	total, sum := uint64(0), uint64(0)
	for i := range before {
		before[i] = h.Counts[i] - before[i]
		total += before[i]
	}
	for i, n := range before {
		if sum += n; sum*100 >= total*99 {
			stop = 1e3 * h.Buckets[i+1]
			break
		}
	}
	return 100 * (gc2 - gc) / (gc2 - gc + user2 - user), stop, nil
}

func (b *tableBench) add(name string, value float64, unit string) {
	b.results = append(b.results, bench.Result{Name: b.name(name), Ours: value, Unit: unit, Machine: bench.Machine()})
}

func (b *tableBench) name(what string) string {
	return fmt.Sprintf("table %s, %d rows", what, b.o.Rows)
}

// keyOf is the key of row i; the C++ programs have the same.
func keyOf(i uint32) int64 {
	x := uint64(i)
	x ^= x >> 32
	x *= 0x9E3779B97F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return int64(x ^ x>>32)
}

func keysOf(ids []uint32) []int64 {
	keys := make([]int64, len(ids))
	for i, id := range ids {
		keys[i] = keyOf(id)
	}
	return keys
}

// queries are numbers of rows to look up.
func queries(dist string, rows int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, zipfS, 1, uint64(rows-1))
	ids := make([]uint32, numQueries)
	for i := range ids {
		if dist == "zipf" {
			ids[i] = uint32(z.Uint64())
		} else {
			ids[i] = uint32(r.IntN(rows))
		}
	}
	return ids
}

// filled is a table of so many rows.
func filled(rule optim.Optimizer, rows int) *table.Mem {
	t := table.New(param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: dim, Init: param.Uniform(-.1, .1), Optimizer: rule}}}, 1, nil)
	u := table.Update{LR: 1, Counts: make([]uint32, tableBatch), Grads: make([]float32, tableBatch*dim)}
	for at := 0; at < rows; {
		u.Keys = u.Keys[:0]
		for ; at < rows && len(u.Keys) < tableBatch; at++ {
			u.Keys = append(u.Keys, keyOf(uint32(at)))
		}
		u.Counts, u.Grads = u.Counts[:len(u.Keys)], u.Grads[:len(u.Keys)*dim]
		t.Apply(u)
	}
	return t
}

// lookupCandidate looks keys up in batches.
func lookupCandidate(name string, t *table.Mem, keys []int64) bench.Candidate {
	at, dst := 0, make([]float32, tableBatch*dim)
	return bench.Candidate{Name: name, Run: func() (float64, error) {
		for range 16 {
			if n := t.Lookup(keys[at:][:tableBatch], dst); n != tableBatch {
				return 0, fmt.Errorf("psbench: %d of %d rows found", n, tableBatch)
			}
			at = (at + tableBatch) % len(keys)
		}
		return 16 * tableBatch / 1e6, nil
	}}
}

// twoThreads makes lookups on two threads at once.
func twoThreads(t *table.Mem, ids []uint32) bench.Candidate {
	one, two := lookupCandidate("", t, keysOf(ids[:len(ids)/2])), lookupCandidate("", t, keysOf(ids[len(ids)/2:]))
	return bench.Candidate{Name: "table", Run: func() (float64, error) {
		var wg sync.WaitGroup
		var work [2]float64
		var errs [2]error
		for i, c := range []bench.Candidate{one, two} {
			wg.Go(func() {
				for range 16 {
					n, err := c.Run()
					work[i] += n
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		return work[0] + work[1], errors.Join(errs[0], errs[1])
	}}
}

// mapTable is a Go map to rows in one array.
type mapTable struct {
	ids  map[int64]uint32
	rows []float32
}

// goMap makes one with the keys of [filled], and what frees it.
func goMap(rows int) (*mapTable, func()) {
	m := &mapTable{ids: make(map[int64]uint32, rows)}
	var free func()
	m.rows, free = hugeFloats(rows * dim)
	for i := range rows {
		m.ids[keyOf(uint32(i))] = uint32(i)
		m.rows[i*dim] = float32(i)
	}
	return m, free
}

func (m *mapTable) candidate(keys []int64) bench.Candidate {
	at, dst := 0, make([]float32, tableBatch*dim)
	return bench.Candidate{Name: "go map", Run: func() (float64, error) {
		for i, k := range keys[at:][:tableBatch] {
			if id, ok := m.ids[k]; ok {
				copy(dst[i*dim:][:dim], m.rows[int(id)*dim:][:dim])
			}
		}
		at = (at + tableBatch) % len(keys)
		return tableBatch / 1e6, nil
	}}
}
