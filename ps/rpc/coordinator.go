package rpc

import (
	"context"
	"fmt"

	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// coordinatorService serves workers' calls to the coordinator, of a server that has one ([Server.coordinating]), and operators' to the witness of shard 0.
type coordinatorService struct {
	s *Server
}

// c is the coordinator of this process. Where it ends to be that during a call nobody gets the answer.
func (s *coordinatorService) c() *coordinator.Cluster { return s.s.cluster.Load() }

func (s *coordinatorService) Info(context.Context, *psv1.InfoRequest) (*psv1.InfoResponse, error) {
	in, err := s.c().Info()
	if err != nil {
		return nil, failed(err)
	}
	r := &psv1.InfoResponse{Generation: in.Generation, Addresses: in.Addrs, Dir: in.Dir, Partial: in.Recovery == ps.Partial}
	for _, err := range in.Skipped {
		r.Skipped = append(r.Skipped, err.Error())
	}
	if r.Restored, r.RestoredPath, err = brief(in.Restored); err == nil {
		r.Newest, r.NewestPath, err = brief(in.Newest)
	}
	return r, failed(err)
}

// brief renders a snapshot's description without worker state, which may be large.
func brief(info *ps.SnapshotInfo) ([]byte, string, error) {
	if info == nil {
		return nil, "", nil
	}
	short := *info
	short.State = nil
	b, err := toManifest(&short)
	return b, info.Path, err
}

func (s *coordinatorService) Join(ctx context.Context, r *psv1.JoinRequest) (*psv1.JoinResponse, error) {
	id, err := s.c().Join(ctx, ps.JoinOptions{Worker: r.Worker, Source: r.Source, Plan: r.Plan, Single: r.Single, Splits: r.Splits, Report: fromReport(r.Report), Delegation: fromDelegation(r.Delegation)})
	return &psv1.JoinResponse{Member: id}, failed(err)
}

func (s *coordinatorService) Await(ctx context.Context, r *psv1.AwaitRequest) (*psv1.AwaitResponse, error) {
	a, err := s.c().Await(ctx, r.Member, r.Have)
	return &psv1.AwaitResponse{
		Version: a.Version, Generation: a.Generation, Phase: a.Phase, Task: uint32(a.Task), Splits: a.Splits, Leader: a.Leader,
		Members: uint32(a.Members), Snapshot: a.Snapshot, Rows: a.Rows,
		Delegation: toDelegation(&a.Delegation),
	}, failed(err)
}

func (s *coordinatorService) Follow(ctx context.Context, r *psv1.FollowRequest) (*psv1.FollowResponse, error) {
	ended := make([]int, len(r.Ended))
	for i, task := range r.Ended {
		ended[i] = int(task)
	}
	how, err := s.c().Follow(ctx, r.Worker, r.Run, ps.Ending(r.Have), ended)
	return &psv1.FollowResponse{Ending: uint32(how)}, failed(err)
}

func (s *coordinatorService) Report(ctx context.Context, r *psv1.ReportRequest) (*psv1.ReportResponse, error) {
	return &psv1.ReportResponse{}, failed(s.c().Report(ctx, r.Member, fromReport(r)))
}

func (s *coordinatorService) Leave(ctx context.Context, r *psv1.LeaveRequest) (*psv1.LeaveResponse, error) {
	last, err := s.c().Leave(ctx, r.Member)
	return &psv1.LeaveResponse{Last: last}, failed(err)
}

func (s *coordinatorService) Snapshot(ctx context.Context, r *psv1.SnapshotRequest) (*psv1.SnapshotResponse, error) {
	info, err := s.c().Snapshot(ctx, ps.SnapshotOptions{Pin: r.Pin, Note: r.Note, Label: r.Label, IfChanged: r.IfChanged})
	if err != nil {
		return nil, failed(err)
	}
	b, err := toManifest(&info)
	return &psv1.SnapshotResponse{Manifest: b, Path: info.Path, TookNanos: int64(info.Took), StallNanos: int64(info.Stall)}, failed(err)
}

func (s *coordinatorService) RollBack(ctx context.Context, r *psv1.RollBackRequest) (*psv1.RollBackResponse, error) {
	return &psv1.RollBackResponse{}, failed(s.c().RollBack(ctx, r.Generation, r.Why))
}

func (s *coordinatorService) Promote(ctx context.Context, r *psv1.PromoteRequest) (*psv1.PromoteResponse, error) {
	if w := s.s.o.Witness; s.s.o.Shard != 0 {
		if r.Shard != 0 {
			return nil, failed(fmt.Errorf("ps: shard %d decides who is in charge of shard 0, not of shard %d: %w", s.s.o.Shard, r.Shard, ps.ErrMismatch))
		}
		return &psv1.PromoteResponse{}, failed(w.Promote(ctx))
	}
	return &psv1.PromoteResponse{}, failed(s.c().Promote(ctx, int(r.Shard)))
}

func (s *coordinatorService) SetState(ctx context.Context, r *psv1.SetStateRequest) (*psv1.SetStateResponse, error) {
	if r.Member != 0 || r.Generation != 0 {
		return &psv1.SetStateResponse{}, failed(s.c().SetStateAt(ctx, r.Member, r.Generation, r.Key, r.Value))
	}
	if r.Initial {
		v, err := s.c().InitState(ctx, r.Key, r.Value)
		return &psv1.SetStateResponse{Value: v}, failed(err)
	}
	return &psv1.SetStateResponse{}, failed(s.c().SetState(ctx, r.Key, r.Value))
}

func (s *coordinatorService) GetState(ctx context.Context, r *psv1.GetStateRequest) (*psv1.GetStateResponse, error) {
	v, err := s.c().State(ctx, r.Key)
	return &psv1.GetStateResponse{Value: v}, failed(err)
}

func (s *coordinatorService) Progress(ctx context.Context, r *psv1.ProgressRequest) (*psv1.ProgressResponse, error) {
	progress, err := s.c().Progress(ctx, r.Source)
	out := &psv1.ProgressResponse{}
	for split, p := range progress {
		out.Progress = append(out.Progress, &psv1.Split{Source: r.Source, Split: split, Position: int64(p.Position), Rows: p.Rows, Batches: p.Batches})
	}
	return out, failed(err)
}

func (s *coordinatorService) Digest(ctx context.Context, _ *psv1.DigestRequest) (*psv1.DigestTextResponse, error) {
	d, err := s.c().Digest(ctx)
	return &psv1.DigestTextResponse{Digest: d}, failed(err)
}

func (s *coordinatorService) Stats(ctx context.Context, _ *psv1.StatsRequest) (*psv1.StatsResponse, error) {
	st, err := s.c().Stats(ctx)
	return toStats(st), failed(err)
}

func (s *coordinatorService) Scale(ctx context.Context, r *psv1.ScaleRequest) (*psv1.ScaleResponse, error) {
	out, err := s.c().Scale(ctx, r.Addresses)
	return &psv1.ScaleResponse{
		From: uint32(out.From), To: uint32(out.To), Snapshot: out.Snapshot, Rows: out.Rows, Again: out.Again, TookNanos: int64(out.Took), PauseNanos: int64(out.Pause),
	}, failed(err)
}
