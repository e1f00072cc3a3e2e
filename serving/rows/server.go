package rows

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model/param"
	servingv1 "github.com/monolith-go/monolith/proto/monolith/serving/v1"
)

// Held is an export that a shard has open.
type Held struct {
	Version  int64
	Manifest uint32
	// Changes says that its rows may be others the next time: they are pushed to the shard.
	Changes bool
}

// Store reads rows, for one goroutine at a time: what is read between Hold and Release is one state.
type Store interface {
	Hold()
	Release()
	// Lookup fills rows.Values for rows.Keys, which have each table of the export.
	Lookup(ctx context.Context, rows *param.Rows) error
}

// Opened is an export of which rows are read.
type Opened struct {
	Held
	Layout *param.Layout
	Store  Store
}

// Exports are the exports that a shard has open. Methods may overlap.
type Exports interface {
	// Rows returns an export of a model by the checksum of its manifest, with a store of its caller's own. It stays open until done is called, once, and is kept as long as somebody asks for it now and then.
	// Errors are statuses of gRPC, FAILED_PRECONDITION for an export that is not open.
	Rows(model string, manifest uint32) (e Opened, done func(), err error)
	// Held are those of a model, the newest first. Errors: NOT_FOUND.
	Held(model string) ([]Held, error)
}

// Server is a row shard: the service monolith.serving.v1.Rows. Methods may overlap.
type Server struct {
	part   native.Part
	from   Exports
	looked func(model string, ids int, code codes.Code)
}

// NewServer makes a server of the rows of a part. looked, if not nil, is called for each lookup of a model that is served.
func NewServer(part native.Part, from Exports, looked func(model string, ids int, code codes.Code)) *Server {
	return &Server{part, from, looked}
}

// Hold implements the service.
func (s *Server) Hold(_ context.Context, r *servingv1.HoldRequest) (*servingv1.HoldResponse, error) {
	held, err := s.from.Held(r.GetModel())
	if err != nil {
		return nil, err
	}
	if r.GetManifest() != 0 {
		if _, done, err := s.from.Rows(r.GetModel(), r.GetManifest()); err == nil { // otherwise the answer says which there are
			done()
		}
	}
	out := &servingv1.HoldResponse{Shard: uint32(s.part.Index), Shards: uint32(s.part.Of)}
	for _, h := range held {
		out.Exports = append(out.Exports, &servingv1.Export{Version: h.Version, Manifest: h.Manifest, Changes: h.Changes})
	}
	return out, nil
}

// MaxLookup bounds the bytes of a lookup, ids and rows together, where it has more than one id.
const MaxLookup = 16 << 20

// Lookup implements the service. Errors: FAILED_PRECONDITION for an export that is not open, NOT_FOUND for a model or table that there is not, INVALID_ARGUMENT for rows of another
// dimension and for ids of other shards, RESOURCE_EXHAUSTED for more than [MaxLookup]; DATA_LOSS where the disk does not give a row.
func (s *Server) Lookup(ctx context.Context, r *servingv1.LookupRequest) (out *servingv1.LookupResponse, err error) {
	e, done, err := s.from.Rows(r.GetModel(), r.GetManifest())
	if err != nil {
		return nil, err
	}
	defer done()
	ids := 0
	defer func() {
		if s.looked != nil {
			s.looked(r.GetModel(), ids, status.Code(err))
		}
	}()
	tables, dims := make([]int, len(r.GetTables())), make([]int, len(r.GetTables()))
	bytes := 0
	for i, t := range r.GetTables() {
		if tables[i], dims[i], err = tableOf(e.Layout, t); err != nil {
			return nil, err
		}
		ids += len(t.GetIds())
		bytes += idBytes(dims[i]) * len(t.GetIds())
		if bytes > MaxLookup && ids > 1 {
			return nil, status.Errorf(codes.ResourceExhausted, "the lookup has %d ids in the first %d tables, which with their rows are %d bytes; %d are the most: ask for fewer at a time", ids, i+1, bytes, MaxLookup)
		}
		for _, id := range t.GetIds() {
			if at := native.PartOf(id, s.part.Of); at != s.part.Index {
				return nil, status.Errorf(codes.InvalidArgument, "id %d of table %q is of row shard %d of %d, and this is %d", id, t.GetTable(), at, s.part.Of, s.part.Index)
			}
		}
	}
	out = &servingv1.LookupResponse{Changes: e.Changes}
	one := param.Rows{Keys: make([][]int64, len(e.Layout.Tables)), Values: make([][]float32, len(e.Layout.Tables))}
	e.Store.Hold()
	defer e.Store.Release()
	for i, t := range r.GetTables() {
		rows := make([]float32, dims[i]*len(t.GetIds())) // as bytes they are little endian: native opens on no other machine
		one.Keys[tables[i]], one.Values[tables[i]] = t.GetIds(), rows
		if err := e.Store.Lookup(ctx, &one); err != nil {
			return nil, status.Errorf(codes.DataLoss, "%v", err)
		}
		one.Keys[tables[i]], one.Values[tables[i]] = nil, nil
		out.Tables = append(out.Tables, &servingv1.Weights{Rows: arrow.Float32Traits.CastToBytes(rows)})
	}
	return out, nil
}

// tableOf is the number of a table of a request, and how many numbers a row has.
func tableOf(l *param.Layout, t *servingv1.Ids) (table, dim int, err error) {
	var names []string
	for i, has := range l.Tables {
		if has.Name != t.GetTable() {
			names = append(names, has.Name)
			continue
		}
		if t.GetDim() != 0 && int(t.GetDim()) != has.Dim() {
			return 0, 0, status.Errorf(codes.InvalidArgument, "rows of table %q have %d numbers, not %d", has.Name, has.Dim(), t.GetDim())
		}
		return i, has.Dim(), nil
	}
	return 0, 0, status.Errorf(codes.NotFound, "the model has no table %q%s", t.GetTable(), nearest.Suggest(t.GetTable(), names))
}
