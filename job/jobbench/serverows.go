package jobbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/serving"
	servingrows "github.com/monolith-go/monolith/serving/rows"
	"github.com/monolith-go/monolith/transforms/parse"
)

// rowShards is how many row shards there are.
const rowShards = 2

// serveFromShards measures requests whose rows are read of row shards of this process, over gRPC on loopback, beside requests whose rows are all here: with a cache that has all of them, and without one.
func serveFromShards(ctx context.Context, o bench.Options, s *served) (results []bench.Result, err error) {
	for _, c := range []struct {
		name  string
		cache int64
	}{{"cached", 256 << 20}, {"not cached", 0}} {
		name := fmt.Sprintf("serve deepfm rows of %d row shards, %s, %d cores", rowShards, c.name, serveCores)
		if !o.Wants(name) {
			continue
		}
		e, err := newEntry(ctx, filepath.Join(s.dir, "native"), c.cache)
		if err != nil {
			return nil, err
		}
		from := &served{models: e.models, inputs: s.inputs}
		from.outs.New = s.outs.New
		r, err := bench.Compare(ctx, o, name, "requests/s", bench.Wall,
			bench.Candidate{Name: "monolith", Run: func() (float64, error) { return inTurn, each(ctx, inTurn, 2*serveCores, from.inProcess) }},
			bench.Candidate{Name: "all rows here", Run: func() (float64, error) { return inTurn, each(ctx, inTurn, 2*serveCores, s.inProcess) }})
		if err = errors.Join(err, e.close()); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// entry is a server of a model whose rows are in row shards, and these.
type entry struct {
	models  *serving.Models
	shards  []*serving.Models
	servers []*grpc.Server
	conns   []*grpc.ClientConn
	running sync.WaitGroup
}

func newEntry(ctx context.Context, exports string, cache int64) (_ *entry, err error) {
	e := &entry{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	config := []serving.ModelConfig{{Name: "deepfm", Dir: exports}}
	recipe := func(m *export.Model) (parse.Options, error) { return wiring.RecipeOptions(m.Recipe, components.All()) }
	from := servingrows.Options{CacheBytes: cache}
	for i := range rowShards {
		m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Part: &native.Part{Index: i, Of: rowShards}})
		e.shards = append(e.shards, m)
		if err := m.Configure(ctx, config); err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		server := serving.NewServer(serving.Options{Models: m}).GRPC(serving.GRPCOptions{})
		e.servers = append(e.servers, server)
		e.running.Go(func() { _ = server.Serve(l) }) // a call says what is wrong
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		e.conns = append(e.conns, conn)
		from.Shards = append(from.Shards, servingrows.Shard{{Addr: l.Addr().String(), Conn: conn}})
	}
	e.models = serving.NewModels(serving.ModelsOptions{Recipe: recipe, Rows: servingrows.NewClient(from)})
	return e, e.models.Configure(ctx, config)
}

func (e *entry) close() error {
	if e.models != nil {
		e.models.Close()
	}
	var errs []error
	for _, c := range e.conns {
		errs = append(errs, c.Close())
	}
	for _, s := range e.servers {
		s.Stop()
	}
	e.running.Wait()
	for _, m := range e.shards {
		m.Close()
	}
	return errors.Join(errs...)
}
