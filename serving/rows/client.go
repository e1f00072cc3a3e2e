package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export"
	servingv1 "github.com/monolith-go/monolith/proto/monolith/serving/v1"
)

// ErrNotReady means that a row shard does not answer, or has not got an export: [Client.Open] may be tried again.
var ErrNotReady = errors.New("its rows cannot be read yet")

// Shard is a row shard as an entry reaches it: one or more replicas, processes that have the same rows. Lookups go to them by turns, and where one does not answer to the next.
type Shard []Replica

// Replica is one of the processes of a row shard.
type Replica struct {
	// Addr names it in errors.
	Addr string
	// Conn is the caller's, and stays open as long as the client.
	Conn grpc.ClientConnInterface
}

// Observer is told what a client does. Its methods may overlap.
type Observer interface {
	// Looked is called for each batch with how many of its distinct rows the cache had, and how many the shards were asked for.
	Looked(model string, cached, asked int)
	// Called is called for each call to a shard, with its number.
	Called(shard int, took time.Duration, code codes.Code)
}

// Options are what a client asks whom. Shards is required; the zero value of everything else works.
type Options struct {
	// Shards are all of them, in the order of their numbers, none without a replica.
	Shards []Shard
	// CacheBytes is what rows that were read may take; 0: none are kept.
	CacheBytes int64
	// Timeout bounds a call to a shard; 0: 5 s.
	Timeout time.Duration
	// Hold is how often replicas are told which exports are read, which they keep, and so how long one that is back may have to wait for lookups while another answers them; 0: 5 s.
	Hold time.Duration
	// Observer, if not nil, is told what is done.
	Observer Observer
	// Logger gets a line when a replica is lost and when it is back; nil: nothing is logged.
	Logger *slog.Logger
}

// Client reads rows of exports from row shards. Methods may overlap.
type Client struct {
	o      Options
	shards []shard
	cache  *cache
	tables atomic.Uint32 // numbers that tables of exports have in the cache
}

// shard is one with how its replicas are.
type shard struct {
	replicas []replica
	turn     atomic.Uint32
}

// replica is one with how it is.
type replica struct {
	Replica
	number int // of its shard
	rows   servingv1.RowsClient

	mu    sync.Mutex
	err   error // of the last call
	calls int64
	took  time.Duration // of all
}

// Status is how a replica of a shard is.
type Status struct {
	Shard int
	Addr  string
	// Err is why the last call failed; nil: it did not.
	Err error
	// Calls is how many lookups were answered, and Mean the time that they took on the mean.
	Calls int64
	Mean  time.Duration
}

// NewClient makes a client. It makes no call.
func NewClient(o Options) *Client {
	o.Timeout, o.Hold = cmp.Or(o.Timeout, 5*time.Second), cmp.Or(o.Hold, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c := &Client{o: o, shards: make([]shard, len(o.Shards)), cache: newCache(o.CacheBytes)}
	for i, s := range o.Shards {
		c.shards[i].replicas = make([]replica, len(s))
		for j, r := range s {
			of := &c.shards[i].replicas[j]
			of.Replica, of.number, of.rows = r, i, servingv1.NewRowsClient(r.Conn)
		}
	}
	return c
}

// Status says how the replicas of all shards are.
func (c *Client) Status() (out []Status) {
	for i := range c.shards {
		for j := range c.shards[i].replicas {
			r := &c.shards[i].replicas[j]
			r.mu.Lock()
			s := Status{Shard: i, Addr: r.Addr, Err: r.err, Calls: r.calls}
			if r.calls > 0 {
				s.Mean = r.took / time.Duration(r.calls)
			}
			r.mu.Unlock()
			out = append(out, s)
		}
	}
	return out
}

// inTurn appends the numbers of the replicas in the order in which they are asked: those whose last call succeeded, which begin by turns, then the others.
func (s *shard) inTurn(order []int) []int {
	if len(s.replicas) == 1 {
		return append(order, 0)
	}
	first, lost := int(s.turn.Add(1)%uint32(len(s.replicas))), 0
	for i := range s.replicas {
		j := (first + i) % len(s.replicas)
		r := &s.replicas[j]
		r.mu.Lock()
		good := r.err == nil
		r.mu.Unlock()
		order = append(order, j)
		if !good {
			lost++
			continue
		}
		if lost > 0 { // in front of those that are lost
			at := len(order) - 1 - lost
			copy(order[at+1:], order[at:])
			order[at] = j
		}
	}
	return order
}

// CacheBytes is what rows that were read take.
func (c *Client) CacheBytes() int64 { return c.cache.bytes() }

// is remembers how the last call to a replica went, and says when that is another than before. took is above 0 of a lookup that was answered.
func (c *Client) is(r *replica, err error, took time.Duration) {
	r.mu.Lock()
	was := r.err
	r.err = err
	if took > 0 {
		r.calls++
		r.took += took
	}
	r.mu.Unlock()
	switch {
	case err != nil && was == nil:
		c.o.Logger.Warn("a row shard cannot be read; its other replicas are asked, and rows that the cache has are used", "shard", r.number, "addr", r.Addr, "err", err)
	case err == nil && was != nil:
		c.o.Logger.Info("a row shard can be read again", "shard", r.number, "addr", r.Addr)
	}
}

// name names a replica in errors.
func (c *Client) name(r *replica) string {
	return fmt.Sprintf("row shard %d of %d at %s", r.number, len(c.shards), r.Addr)
}

// Rows are the rows of an export, of which the entry has all else. Methods may overlap, but for Close.
type Rows struct {
	c        *Client
	name     string
	model    *export.Model
	manifest uint32
	first    uint32   // number of the first table in the cache
	tables   []string // their names
	dims     []int
	// changes says of each shard that rows are pushed to it: its rows are neither kept nor taken from the cache.
	changes []atomic.Bool

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Open begins to read the rows of an export of a model: m and manifest are as [native.OpenModel] has them, and version is what the export is called in errors. Errors: [ErrNotReady] as long as of
// some shard no replica has the export: each does not answer, is not of the shard that its place says, or has others; the text says which and why.
//
// [native.OpenModel]: https://pkg.go.dev/github.com/monolith-go/monolith/export/native#OpenModel
func (c *Client) Open(ctx context.Context, model string, version int64, m *export.Model, manifest uint32) (*Rows, error) {
	r := &Rows{c: c, name: model, model: m, manifest: manifest, changes: make([]atomic.Bool, len(c.shards))}
	if err := r.hold(ctx, version); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	for _, t := range m.Graph.Layout().Tables {
		r.tables, r.dims = append(r.tables, t.Name), append(r.dims, t.Dim())
	}
	r.first = c.tables.Add(uint32(len(r.tables))) - uint32(len(r.tables))
	held, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.wg.Go(func() {
		t := time.NewTicker(c.o.Hold)
		defer t.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-t.C:
				_ = r.hold(held, version) // it is logged, and lookups have it
			}
		}
	})
	return r, nil
}

// hold asks all replicas for an export, and returns what is wrong with those shards of which none has it.
func (r *Rows) hold(ctx context.Context, version int64) error {
	c := r.c
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	errs := make([][]error, len(c.shards))
	var wg sync.WaitGroup
	for i := range c.shards {
		errs[i] = make([]error, len(c.shards[i].replicas))
		for j := range c.shards[i].replicas {
			wg.Go(func() {
				of := &c.shards[i].replicas[j]
				got, err := of.rows.Hold(ctx, &servingv1.HoldRequest{Model: r.name, Manifest: r.manifest})
				if err == nil {
					err = r.has(i, got, version)
				}
				if err != nil {
					errs[i][j] = fmt.Errorf("%s: %s", c.name(of), text(err))
				}
				if !errors.Is(ctx.Err(), context.Canceled) { // otherwise nobody asks any more
					c.is(of, errs[i][j], 0)
				}
			})
		}
	}
	wg.Wait()
	var lacking []error
	for _, of := range errs {
		if !slices.Contains(of, nil) {
			lacking = append(lacking, of...)
		}
	}
	return all(lacking)
}

// all is what shards have said, in a line; nil: nothing is wrong.
func all(errs []error) error {
	var texts []string
	for _, err := range errs {
		if err != nil {
			texts = append(texts, text(err))
		}
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// has refuses a replica of another shard than it should be of, or does not have an export.
func (r *Rows) has(number int, got *servingv1.HoldResponse, version int64) error {
	c := r.c
	if got.GetShard() != uint32(number) || got.GetShards() != uint32(len(c.shards)) {
		return fmt.Errorf("it is shard %d of %d: name all row shards in the order of their numbers, or start that one with --shard %d/%d", got.GetShard(), got.GetShards(), number, len(c.shards))
	}
	var others []string
	for _, e := range got.GetExports() {
		if e.GetManifest() == r.manifest {
			if e.GetChanges() {
				r.changes[number].Store(true)
			}
			return nil
		}
		others = append(others, fmt.Sprintf("%d (manifest %08x)", e.GetVersion(), e.GetManifest()))
	}
	if others == nil {
		others = []string{"none"}
	}
	return fmt.Errorf("it does not have version %d (manifest %08x); of the versions it has %s", version, r.manifest, strings.Join(others, ", "))
}

// text is what an error says, without gRPC's frame.
func text(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Message()
	}
	return err.Error()
}

// Model is the model. It belongs to the rows.
func (r *Rows) Model() *export.Model { return r.model }

// AsOf is when the snapshot of the export was taken.
func (r *Rows) AsOf() time.Time { return r.model.From.Created }

// Close ends the reading. Readers must not be used from then on.
func (r *Rows) Close() error {
	r.stop()
	r.wg.Wait()
	return nil
}

// most is how many ids of a table a call has beside so many bytes of others: at least one, so that a row of any size can be had.
func most(bytes, dim int) int { return max(1, min(bytes/idBytes(dim), math.MaxInt32)) }

// idBytes is what an id takes in a request with its row in the answer.
func idBytes(dim int) int { return 8 + 4*dim }
