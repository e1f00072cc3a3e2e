package rows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model/param"
	servingv1 "github.com/monolith-go/monolith/proto/monolith/serving/v1"
)

const (
	// callBytes is what a call to a shard has at most, ids and rows together; larger lookups are several calls.
	callBytes = 2 << 20
	// maxAnswer bounds what is received of a shard in one answer.
	maxAnswer = 64 << 20
)

// Reader looks up rows, for one goroutine at a time. It keeps its memory.
type Reader struct {
	r    *Rows
	asks []ask // of each shard
	errs []error
}

// ask is what a shard is asked for.
type ask struct {
	tables []missing
	some   bool
	// The request of one call.
	request servingv1.LookupRequest
	ids     []*servingv1.Ids
	parts   []part
	// order is in which replicas are asked, and errs what is wrong with those that were.
	order []int
	errs  []error
}

// missing are ids of a table that the cache does not have, and where they are in the lookup.
type missing struct {
	ids []int64
	at  []int32
}

// part is what a call has of the missing ids of a table.
type part struct{ table, from, to int }

// Reader makes a reader.
func (r *Rows) Reader() *Reader {
	out := &Reader{r: r, asks: make([]ask, len(r.c.shards)), errs: make([]error, len(r.c.shards))}
	for i := range out.asks {
		out.asks[i].tables = make([]missing, len(r.tables))
	}
	return out
}

// Hold does nothing: rows are read by calls to several shards, each of which gives one state of its own.
func (*Reader) Hold() {}

// Release does nothing.
func (*Reader) Release() {}

// Dense copies the dense weights unless the caller has them already, and returns their version, which is always 1.
func (r *Reader) Dense(_ context.Context, have uint64, dst []float32) (version uint64, err error) {
	if len(dst) != len(r.r.model.Dense) {
		return 0, fmt.Errorf("rows: room for %d dense weights of %d", len(dst), len(r.r.model.Dense))
	}
	if have != 1 {
		copy(dst, r.r.model.Dense)
	}
	return 1, nil
}

// Lookup fills rows.Values for rows.Keys from the cache and from the shards, all of which are asked at once, each by one of its replicas or, where that fails, by the next. Errors are statuses of gRPC that name
// the replicas of a shard of which none answers: UNAVAILABLE for those that cannot be reached or no longer have the export; DEADLINE_EXCEEDED and CANCELED where ctx ends; RESOURCE_EXHAUSTED and DATA_LOSS as they say. Only ids that the cache does not have are asked for, so that nothing fails
// for a shard whose rows it has. [errors.ErrUnsupported] for rows with optimizer state.
func (r *Reader) Lookup(ctx context.Context, rows *param.Rows) error {
	if rows.State != nil {
		return fmt.Errorf("rows: an export has no optimizer state: %w", errors.ErrUnsupported)
	}
	if len(rows.Keys) != len(r.r.tables) || len(rows.Values) != len(rows.Keys) {
		return fmt.Errorf("rows: a lookup in %d tables of %d", len(rows.Keys), len(r.r.tables))
	}
	cached, asked := 0, 0
	for i := range r.asks {
		r.asks[i].begin()
	}
	for t, ids := range rows.Keys {
		dim := r.r.dims[t]
		if len(rows.Values[t]) != dim*len(ids) {
			return fmt.Errorf("rows: %d numbers for %d ids of %d", len(rows.Values[t]), len(ids), dim)
		}
		for i, id := range ids {
			shard := native.PartOf(id, len(r.asks))
			if !r.r.changes[shard].Load() && r.r.c.cache.get(r.key(t, id), rows.Values[t][i*dim:][:dim]) {
				cached++
				continue
			}
			asked++
			a := &r.asks[shard]
			m := &a.tables[t]
			m.ids, m.at, a.some = append(m.ids, id), append(m.at, int32(i)), true
		}
	}
	var err error
	if asked > 0 {
		err = r.ask(ctx, rows)
	}
	if o := r.r.c.o.Observer; o != nil {
		o.Looked(r.r.name, cached, asked)
	}
	return err
}

func (r *Reader) key(table int, id int64) key { return key{r.r.first + uint32(table), id} }

// begin empties an ask.
func (a *ask) begin() {
	a.some = false
	for t := range a.tables {
		m := &a.tables[t]
		m.ids, m.at = m.ids[:0], m.at[:0]
	}
}

// ask asks the shards for what is missing.
func (r *Reader) ask(ctx context.Context, rows *param.Rows) error {
	clear(r.errs)
	var wg sync.WaitGroup
	for i := range r.asks {
		if r.asks[i].some {
			wg.Go(func() { r.errs[i] = r.askShard(ctx, i, rows) })
		}
	}
	wg.Wait()
	return allStatus(r.errs)
}

// allStatus is what shards or replicas have said, as one status.
func allStatus(errs []error) error {
	err := all(errs)
	if err == nil {
		return nil
	}
	code := codes.OK
	for _, err := range errs {
		code = max(code, status.Code(err)) // of several kinds DATA_LOSS, then UNAVAILABLE
	}
	return status.Error(code, err.Error())
}

// askShard asks a shard for what is missing of it, in as many calls as it takes.
func (r *Reader) askShard(ctx context.Context, number int, rows *param.Rows) error {
	a := &r.asks[number]
	a.order = r.r.c.shards[number].inTurn(a.order[:0])
	for t, from := 0, 0; t < len(a.tables); {
		t, from = r.next(a, t, from)
		if len(a.parts) == 0 {
			break
		}
		if err := r.call(ctx, number, a, rows); err != nil {
			return err
		}
	}
	return nil
}

// call asks the replicas of a shard for what an ask has, one after the other until one answers, with which later calls of the ask begin.
func (r *Reader) call(ctx context.Context, number int, a *ask, rows *param.Rows) error {
	a.errs = a.errs[:0]
	for i, j := range a.order {
		err := r.askReplica(ctx, &r.r.c.shards[number].replicas[j], a, rows)
		if err == nil {
			a.order[0], a.order[i] = j, a.order[0]
			return nil
		}
		if ctx.Err() != nil { // nobody waits for another
			return err
		}
		a.errs = append(a.errs, err)
	}
	return allStatus(a.errs)
}

// askReplica asks one replica.
func (r *Reader) askReplica(ctx context.Context, of *replica, a *ask, rows *param.Rows) error {
	began := time.Now()
	due := began.Add(r.r.c.o.Timeout)
	theirs, has := ctx.Deadline()
	slow := !has || due.Before(theirs)
	within, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	got, err := of.rows.Lookup(within, &a.request, grpc.MaxCallRecvMsgSize(maxAnswer))
	took := time.Since(began)
	if o := r.r.c.o.Observer; o != nil {
		o.Called(of.number, took, status.Code(err))
	}
	if err == nil {
		err = r.take(of.number, a, got, rows)
	}
	if err != nil {
		return r.failed(of, slow, err)
	}
	r.r.c.is(of, nil, took)
	return nil
}

// failed is the error of a call to a replica, for who asks this server. slow: if the time is over, it is that of calls to shards, not that of who asks.
func (r *Reader) failed(of *replica, slow bool, err error) error {
	code := status.Code(err)
	switch {
	case code == codes.DeadlineExceeded && slow:
		code, err = codes.Unavailable, fmt.Errorf("no answer within %s", r.r.c.o.Timeout)
	case code == codes.DeadlineExceeded, code == codes.Canceled: // says nothing about the shard
		return status.Errorf(code, "%s: %s", r.r.c.name(of), text(err))
	case code == codes.ResourceExhausted, code == codes.DataLoss:
	default: // also what it thinks of this server: that is no fault of who asks
		code = codes.Unavailable
	}
	err = fmt.Errorf("%s: %s", r.r.c.name(of), text(err))
	r.r.c.is(of, err, 0)
	return status.Error(code, err.Error())
}

// next makes the request of a call from what is missing behind the ids of a table that were asked for, and returns how far it goes.
func (r *Reader) next(a *ask, t, from int) (int, int) {
	a.parts = a.parts[:0]
	a.request.Model, a.request.Manifest, a.request.Tables = r.r.name, r.r.manifest, a.request.Tables[:0]
	room := callBytes
	for t < len(a.tables) {
		m := &a.tables[t]
		n := min(len(m.ids)-from, most(room, r.r.dims[t]))
		if n > 0 {
			k := len(a.parts)
			if k == len(a.ids) {
				a.ids = append(a.ids, &servingv1.Ids{})
			}
			one := a.ids[k]
			one.Table, one.Dim, one.Ids = r.r.tables[t], uint32(r.r.dims[t]), m.ids[from:from+n]
			a.parts, a.request.Tables = append(a.parts, part{t, from, from + n}), append(a.request.Tables, one)
			room -= n * idBytes(r.r.dims[t])
			from += n
		}
		if from < len(m.ids) {
			break
		}
		t, from = t+1, 0
		if room <= 0 {
			break
		}
	}
	return t, from
}

// take puts the rows of an answer of a shard where they belong, and into the cache unless they change.
func (r *Reader) take(number int, a *ask, got *servingv1.LookupResponse, rows *param.Rows) error {
	if got.GetChanges() {
		r.r.changes[number].Store(true)
	}
	keep := !r.r.changes[number].Load()
	if len(got.GetTables()) != len(a.parts) {
		return status.Errorf(codes.DataLoss, "it answers with %d tables of %d", len(got.GetTables()), len(a.parts))
	}
	for k, p := range a.parts {
		dim, b := r.r.dims[p.table], got.GetTables()[k].GetRows()
		if len(b) != 4*dim*(p.to-p.from) {
			return status.Errorf(codes.DataLoss, "it answers with %d bytes for %d rows of %d numbers of table %s", len(b), p.to-p.from, dim, r.r.tables[p.table])
		}
		m := &a.tables[p.table]
		for i := p.from; i < p.to; i++ {
			row := rows.Values[p.table][int(m.at[i])*dim:][:dim]
			for j := range row {
				row[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
			}
			b = b[4*dim:]
			if keep {
				r.r.c.cache.put(r.key(p.table, m.ids[i]), row)
			}
		}
	}
	return nil
}
