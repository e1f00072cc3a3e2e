package rpc

import (
	"context"
	"time"

	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

// shardService serves the coordinator's calls to a shard.
type shardService struct {
	n *shard.Node
}

func (s *shardService) Status(ctx context.Context, _ *psv1.StatusRequest) (*psv1.StatusResponse, error) {
	st, err := s.n.Status(ctx)
	return &psv1.StatusResponse{
		Shard: uint32(st.Shard), NumShards: uint32(st.NumShards), Incarnation: st.Incarnation, Generation: st.Generation, Base: st.Base, LogBase: st.LogBase,
		Records: st.Recovery.Records, TornBytes: st.Recovery.TornBytes, Lost: st.Recovery.Lost, Rows: st.Rows, Preparing: st.Preparing,
	}, failed(err)
}

func (s *shardService) Load(ctx context.Context, r *psv1.LoadRequest) (*psv1.LoadResponse, error) {
	err := s.n.Load(ctx, ps.LoadOptions{Generation: r.Generation, Keep: r.Keep, Path: r.Path, ID: r.Id, Shards: int(r.Shards)})
	return &psv1.LoadResponse{}, failed(err)
}

func (s *shardService) Prepare(ctx context.Context, r *psv1.PrepareRequest) (*psv1.PrepareResponse, error) {
	return &psv1.PrepareResponse{}, failed(s.n.Prepare(ctx, ps.PrepareOptions{Shards: int(r.Shards), Path: r.Path, ID: r.Id, Hurry: r.Hurry}))
}

func (s *shardService) BeginCut(ctx context.Context, r *psv1.BeginCutRequest) (*psv1.BeginCutResponse, error) {
	return &psv1.BeginCutResponse{}, failed(s.n.BeginCut(ctx, r.Id, r.Snapshot, r.Sessions, time.Duration(r.HoldNanos)))
}

func (s *shardService) AwaitCut(ctx context.Context, r *psv1.AwaitCutRequest) (*psv1.AwaitCutResponse, error) {
	st, err := s.n.AwaitCut(ctx, r.Id)
	if err != nil {
		return nil, failed(err)
	}
	return &psv1.AwaitCutResponse{Progress: toSplits(st.Progress), Bytes: st.Bytes, Base: st.Base, BaseBytes: st.BaseBytes}, nil
}

func (s *shardService) WriteCut(ctx context.Context, r *psv1.WriteCutRequest) (*psv1.WriteCutResponse, error) {
	p, err := s.n.WriteCut(ctx, r.Id, ps.WriteOptions{Dir: r.Dir, Base: r.Base, Hurry: r.Hurry})
	if err != nil {
		return nil, failed(err)
	}
	return toPart(p)
}

func (s *shardService) EndCut(ctx context.Context, r *psv1.EndCutRequest) (*psv1.EndCutResponse, error) {
	stall, err := s.n.EndCut(ctx, r.Id, r.Durable)
	return &psv1.EndCutResponse{StallNanos: int64(stall)}, failed(err)
}

func (s *shardService) Progress(ctx context.Context, _ *psv1.ProgressRequest) (*psv1.ProgressResponse, error) {
	p, err := s.n.Progress(ctx)
	return &psv1.ProgressResponse{Progress: toSplits(p)}, failed(err)
}

func (s *shardService) Digest(ctx context.Context, _ *psv1.DigestRequest) (*psv1.DigestResponse, error) {
	d, err := s.n.Digest(ctx)
	if err != nil {
		return nil, failed(err)
	}
	b, err := d.Digest.AppendBinary(nil)
	return &psv1.DigestResponse{Digest: b, Progress: toSplits(d.Progress)}, failed(err)
}

func (s *shardService) Stats(ctx context.Context, _ *psv1.StatsRequest) (*psv1.StatsResponse, error) {
	st, err := s.n.Stats(ctx)
	return toStats(st), failed(err)
}

func (s *shardService) Probe(ctx context.Context, r *psv1.ProbeRequest) (*psv1.ProbeResponse, error) {
	p, err := s.n.Probe(ctx, int(r.Blocks))
	return toProbe(p), failed(err)
}

func (s *shardService) Entries(ctx context.Context, r *psv1.EntriesRequest) (*psv1.EntriesResponse, error) {
	var rows table.Rows
	err := s.n.Entries(ctx, int(r.Table), r.Fids, &rows)
	return &psv1.EntriesResponse{Rows: toRows(&rows)}, failed(err)
}

func (s *shardService) Newest(ctx context.Context, _ *psv1.NewestRequest) (*psv1.NewestResponse, error) {
	newest, err := s.n.Newest(ctx)
	return &psv1.NewestResponse{Time: newest}, failed(err)
}

func (s *shardService) Tally(ctx context.Context, r *psv1.TallyRequest) (*psv1.TallyResponse, error) {
	tables, err := s.n.Tally(ctx, r.Newest)
	return toTally(tables), failed(err)
}

func (s *shardService) Changes(ctx context.Context, r *psv1.ChangesRequest) (*psv1.ChangesResponse, error) {
	c, err := s.n.ChangesFor(ctx, ps.ChangesRequest{Consumer: r.Consumer, Stream: r.Stream, Seq: r.Seq, Rows: r.Rows, Cut: r.Cut, Drop: r.Drop, Shards: int(r.Shards)})
	if err != nil {
		return nil, failed(err)
	}
	out := &psv1.ChangesResponse{
		Stream: c.Stream, Seq: c.Seq, All: c.All, Whole: c.Whole, Table: uint32(c.Table), Rows: toRows(&c.Rows), Removed: c.Removed, Snapshot: c.Snapshot,
	}
	if c.At != nil {
		out.At = &psv1.CutOfShard{Generation: c.At.Generation, AgeNanos: int64(c.At.Age), Progress: toSplits(c.At.Progress), Dense: c.At.Dense}
	}
	return out, nil
}
