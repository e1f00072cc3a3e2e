package psbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// Cluster is what [Shards] measures; an rpc.Remote is one.
type Cluster interface {
	// Bench opens a stream to each shard to rows that are the benchmark's own, and Probe asks a shard what it has to work with.
	Bench(ctx context.Context, name string) ([]ps.Conn, error)
	Probe(ctx context.Context, shard, blocks int) (ps.Probe, error)
}

// ShardsOptions say how shards are measured. What is 0 has a default.
type ShardsOptions struct {
	// Layout is that of the job.
	Layout *param.Layout
	// Addrs are the shards' addresses, in their order.
	Addrs []string
	// Connections is how many streams call a shard at once, each as a worker would; default 1.
	Connections int
	// Batch is how many rows a call has, of all tables together, and IDs how many there are on each shard; default 2,000 and 100,000.
	Batch, IDs int
	// Rounds is how many times the shards take turns, and Each for how long lookups, and then pushes, go to one in a round; default 9 of 100 ms.
	Rounds int
	Each   time.Duration
	// Blocks is how many blocks each disk makes durable; default 64.
	Blocks int
	// Busy measures beside workers that train, which makes them slower; without it they are [ErrTraining].
	Busy bool
	// Rows is how many rows the tables are to hold on all shards together, 0: the limit of their retention says it, if it has one.
	Rows int64
	// Slowest is the [ShardRates].Ratio above which a shard has a finding; 0: none is too slow.
	Slowest float64
}

// ErrTraining means that workers train on the shards that were to be measured.
var ErrTraining = errors.New("workers are training on the shards")

// Calls are the rate and the times of calls of a kind.
type Calls struct {
	// Rate is in rows a second, of all connections together, and Calls how many calls there were.
	Rate  float64 `json:"rows_per_second"`
	Calls int     `json:"calls"`
	// P50, P99 and Max are times of calls, seconds.
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
	Max float64 `json:"max_seconds"`
}

// SyncedDisk is how fast a disk makes blocks durable.
type SyncedDisk struct {
	// Of is "log" or "snapshots".
	Of  string `json:"of"`
	Dir string `json:"dir"`
	// Rate is in bytes a second, P50, P99 and Max are times of one block, seconds.
	Rate  float64 `json:"bytes_per_second"`
	Block int64   `json:"block_bytes"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
	// Failed says why it could not be written to.
	Failed string `json:"failed,omitempty"`
}

// ShardRates is what was measured of a shard.
type ShardRates struct {
	Shard int    `json:"shard"`
	Addr  string `json:"address"`
	Host  string `json:"host,omitempty"`
	// Trainers is how many workers own splits there.
	Trainers int   `json:"trainers"`
	Lookup   Calls `json:"lookup"`
	Push     Calls `json:"push"`
	// Ratio is what a lookup and a push of a row take, to the same of the shard in the middle: 2 is half as fast.
	Ratio float64 `json:"ratio"`
	// Rows and Bytes are what its tables hold, Room what the tables of its process may still take (-1: nobody knows) and Need what its share of all
	// rows will take beside what it holds (-1: nobody has said how many there will be).
	Rows  int64        `json:"rows"`
	Bytes int64        `json:"bytes"`
	Room  int64        `json:"room_bytes"`
	Need  int64        `json:"need_bytes"`
	Disks []SyncedDisk `json:"disks"`
	// Findings are what is wrong with it.
	Findings []string `json:"findings"`
}

func (o ShardsOptions) withDefaults() ShardsOptions {
	o.Connections, o.Batch, o.IDs = max(o.Connections, 1), cmp.Or(o.Batch, 2000), cmp.Or(o.IDs, 100_000)
	o.Rounds, o.Each, o.Blocks = cmp.Or(o.Rounds, 9), cmp.Or(o.Each, 100*time.Millisecond), cmp.Or(o.Blocks, 64)
	o.IDs = max(o.IDs, len(o.Layout.Tables))
	o.Batch = min(max(o.Batch, len(o.Layout.Tables)), o.IDs)
	return o
}

// Shards measures every shard of a cluster from this process: lookups and pushes of rows that are the benchmark's own, with the tables and rules of the
// job, over the streams that workers use; free memory; and how fast the disks of its log and of the snapshots make blocks durable. The model is not touched. Shards take turns, so that what else the
// machine does hits all. They are returned with the slowest first. Errors: [ErrTraining], [ps.ErrLayout] for a job without tables, those of the calls.
func Shards(ctx context.Context, c Cluster, o ShardsOptions) (_ []ShardRates, err error) {
	if len(o.Layout.Tables) == 0 {
		return nil, fmt.Errorf("psbench: the model has no tables, so there are no rows to look up: %w", ps.ErrLayout)
	}
	o = o.withDefaults()
	out := make([]ShardRates, len(o.Addrs))
	for s := range out {
		r := &out[s]
		probe, err := c.Probe(ctx, s, 0)
		if err != nil {
			return nil, err
		}
		if probe.Trainers > 0 && !o.Busy {
			return nil, fmt.Errorf("psbench: shard %d at %s: %w (%d of them), and would be slower meanwhile", s, o.Addrs[s], ErrTraining, probe.Trainers)
		}
		*r = ShardRates{
			Shard: s, Addr: o.Addrs[s], Host: probe.Host, Trainers: probe.Trainers, Rows: probe.Rows, Bytes: probe.Bytes, Room: probe.Room,
			Need: need(o, probe), Disks: []SyncedDisk{}, Findings: []string{},
		}
	}
	var callers []*rowCaller
	defer func() {
		for _, w := range callers {
			for _, conn := range w.conns {
				err = errors.Join(err, conn.Close(context.WithoutCancel(ctx), true))
			}
		}
	}()
	for i := range o.Connections {
		name := fmt.Sprintf("bench-%d-%d", ps.NewID(), i)
		conns, err := c.Bench(ctx, name)
		if err != nil {
			return nil, err
		}
		callers = append(callers, newRowCaller(o, name, conns, uint64(i)))
	}
	for _, w := range callers {
		if err := w.begin(ctx); err != nil {
			return nil, err
		}
	}
	all := make([][2]taken, len(out)) // of lookups and pushes
	for range o.Rounds {
		for s := range out {
			for op := range all[s] {
				if err := all[s][op].slice(ctx, callers, s, op == 1, o.Each); err != nil {
					return nil, fmt.Errorf("psbench: shard %d at %s: %w", s, o.Addrs[s], err)
				}
			}
		}
	}
	for s := range out {
		out[s].Lookup, out[s].Push = all[s][0].calls(), all[s][1].calls()
		probe, err := c.Probe(ctx, s, o.Blocks) // when nobody calls
		if err != nil {
			return nil, err
		}
		for _, d := range probe.Disks {
			out[s].Disks = append(out[s].Disks, synced(d))
		}
	}
	rank(out)
	for i := range out {
		out[i].judge(o.Slowest)
	}
	return out, nil
}

// need is what a shard's share of the rows takes beside what it holds.
func need(o ShardsOptions, p ps.Probe) int64 {
	total := int64(0)
	for _, t := range o.Layout.Tables {
		switch rows := o.Layout.Retention.MaxRows(t); {
		case rows > 0:
			total += rows * t.RowBytes()
		case o.Rows == 0:
			return -1
		default:
			total += o.Rows / int64(len(o.Layout.Tables)) * t.RowBytes()
		}
	}
	return max(total/int64(len(o.Addrs))-p.Bytes, 0)
}

// judge says what is wrong with a shard.
func (r *ShardRates) judge(slowest float64) {
	if slowest > 0 && r.Ratio > slowest {
		r.Findings = append(r.Findings, fmt.Sprintf("a row takes %.1f times as long as on the shard in the middle, and %.1f was allowed: look what else its machine does", r.Ratio, slowest))
	}
	if r.Room >= 0 && r.Need > r.Room {
		r.Findings = append(r.Findings, fmt.Sprintf("its tables need %d MiB more, and may take %d MiB: spread them over more shards, raise ps.memory or lower retention.table_memory", (r.Need+1<<20-1)>>20, r.Room>>20))
	}
	for _, d := range r.Disks {
		if d.Failed != "" {
			r.Findings = append(r.Findings, fmt.Sprintf("its %s in %s cannot be written: %s", d.Of, d.Dir, d.Failed))
		}
	}
}

// rank puts the slowest first.
func rank(all []ShardRates) {
	cost := func(r *ShardRates) float64 { return 1/r.Lookup.Rate + 1/r.Push.Rate }
	costs := make([]float64, len(all))
	for i := range all {
		costs[i] = cost(&all[i])
	}
	middle := bench.Median(costs)
	for i := range all {
		all[i].Ratio = cost(&all[i]) / middle
	}
	slices.SortStableFunc(all, func(a, b ShardRates) int { return cmp.Compare(b.Ratio, a.Ratio) })
}

// synced sums a disk's times up.
func synced(d ps.DiskProbe) SyncedDisk {
	out := SyncedDisk{Of: d.Of, Dir: d.Dir, Block: d.Block, Failed: d.Failed}
	var sum time.Duration
	for _, t := range d.Syncs {
		sum += t
	}
	if sum > 0 {
		out.Rate = float64(d.Block) * float64(len(d.Syncs)) / sum.Seconds()
	}
	out.P50, out.P99, out.Max = quantile(d.Syncs, .5), quantile(d.Syncs, .99), quantile(d.Syncs, 1)
	return out
}

// quantile is the smallest of the times, in seconds, that a share q of them does not exceed; 0 of none. It sorts times.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[max(int(math.Ceil(q*float64(len(times)))), 1)-1].Seconds()
}

// taken is what calls of a kind have taken so far.
type taken struct {
	rows    int
	elapsed time.Duration
	times   []time.Duration
}

func (t *taken) calls() Calls {
	c := Calls{Rate: float64(t.rows) / t.elapsed.Seconds(), Calls: len(t.times)}
	c.P50, c.P99, c.Max = quantile(t.times, .5), quantile(t.times, .99), quantile(t.times, 1)
	return c
}

// slice calls a shard over all connections at once for a time, each once at least.
func (t *taken) slice(ctx context.Context, callers []*rowCaller, shard int, push bool, each time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	times, begin := make([][]time.Duration, len(callers)), time.Now()
	for i, w := range callers {
		group.Go(func() error {
			for {
				from := time.Now()
				err := w.call(ctx, shard, push)
				if err == nil {
					err = context.Cause(ctx)
				}
				if err != nil {
					return err
				}
				now := time.Now()
				times[i] = append(times[i], now.Sub(from))
				if now.Sub(begin) >= each {
					return nil
				}
			}
		})
	}
	err := group.Wait()
	t.elapsed += time.Since(begin)
	for i, w := range callers {
		t.rows += w.batch * len(times[i])
		t.times = append(t.times, times[i]...)
	}
	return err
}

// rowCaller is one connection to all shards.
type rowCaller struct {
	conns []ps.Conn
	rng   *rand.Rand
	// ids are those of each table; a call has some that follow each other, batch of all tables.
	ids    [][]int64
	batch  int
	rows   param.Rows
	update param.Update
	// at is how far the split is pushed on each shard.
	at []int64
}

func newRowCaller(o ShardsOptions, name string, conns []ps.Conn, seed uint64) *rowCaller {
	w := &rowCaller{conns: conns, rng: rand.New(rand.NewPCG(seed, 1)), at: make([]int64, len(conns))}
	w.update = param.Update{Source: "bench", Split: name, LR: 1}
	tables := len(o.Layout.Tables)
	for t, spec := range o.Layout.Tables {
		share := func(n int) int { return (t+1)*n/tables - t*n/tables }
		ids, n := make([]int64, share(o.IDs)), share(o.Batch)
		for i := range ids {
			ids[i] = int64(param.Mix(uint64(t)+1, uint64(i)))
		}
		w.ids, w.batch = append(w.ids, ids), w.batch+n
		w.rows.Keys, w.rows.Values = append(w.rows.Keys, make([]int64, n)), append(w.rows.Values, make([]float32, n*spec.Dim()))
		grads, counts := make([]float32, n*spec.Width(param.Train)), make([]uint32, n)
		for i := range grads {
			grads[i] = .01
		}
		for i := range counts {
			counts[i] = 1
		}
		w.update.Grads, w.update.Counts = append(w.update.Grads, grads), append(w.update.Counts, counts)
	}
	w.update.Keys, w.update.NumRows = w.rows.Keys, w.batch
	return w
}

func (w *rowCaller) split() ps.SplitID {
	return ps.SplitID{Source: w.update.Source, Split: w.update.Split}
}

// begin makes all rows on all shards.
func (w *rowCaller) begin(ctx context.Context) error {
	for s, conn := range w.conns {
		if _, _, err := conn.Acquire(ctx, w.split(), 1); err != nil {
			return err
		}
		for from, more := 0, true; more; {
			more = false
			for t, keys := range w.rows.Keys {
				first := min(from*len(keys), len(w.ids[t])-len(keys)) // the last call repeats some
				copy(keys, w.ids[t][first:])
				more = more || first+len(keys) < len(w.ids[t])
			}
			if err := w.push(ctx, s); err != nil {
				return err
			}
			from++
		}
	}
	return nil
}

// call looks up, or pushes, rows by chance.
func (w *rowCaller) call(ctx context.Context, shard int, push bool) error {
	for t, keys := range w.rows.Keys {
		copy(keys, w.ids[t][w.rng.IntN(len(w.ids[t])-len(keys)+1):])
	}
	if push {
		return w.push(ctx, shard)
	}
	_, err := w.conns[shard].Lookup(ctx, nil, &w.rows)
	return err
}

// push stages an update, which commits the one before.
func (w *rowCaller) push(ctx context.Context, shard int) error {
	u := &w.update
	u.From, u.To = w.at[shard], w.at[shard]+1
	var commit []ps.Control
	if u.From > 0 {
		commit = []ps.Control{{Kind: ps.Commit, Split: w.split(), Epoch: 1, To: u.From}}
	}
	if _, err := w.conns[shard].Stage(ctx, commit, 1, u); err != nil {
		return err
	}
	w.at[shard]++
	return nil
}
