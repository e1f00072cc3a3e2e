package rpc

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/pipeline/position"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
	"github.com/monolith-go/monolith/ps/wire"
)

func toSplits(progress map[ps.SplitID]ps.Progress) []*psv1.Split {
	out := make([]*psv1.Split, 0, len(progress))
	for id, p := range progress {
		out = append(out, &psv1.Split{Source: id.Source, Split: id.Split, Position: int64(p.Position), Rows: p.Rows, Batches: p.Batches})
	}
	return out
}

func fromSplits(splits []*psv1.Split) map[ps.SplitID]ps.Progress {
	out := make(map[ps.SplitID]ps.Progress, len(splits))
	for _, s := range splits {
		out[ps.SplitID{Source: s.Source, Split: s.Split}] = ps.Progress{Position: position.Position(s.Position), Rows: s.Rows, Batches: s.Batches}
	}
	return out
}

func toPart(p *snapshot.Part) (*psv1.WriteCutResponse, error) {
	digest, err := p.Digest.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	r := &psv1.WriteCutResponse{Digest: digest}
	for _, f := range p.Files {
		r.Files = append(r.Files, &psv1.File{
			Name: f.Name, Kind: string(f.Kind), Table: int32(f.Table), Shard: uint32(f.Shard), Rows: f.Rows, Bytes: f.Bytes, Sha256: f.SHA256, Total: f.Total,
		})
	}
	return r, nil
}

func fromPart(r *psv1.WriteCutResponse) (*snapshot.Part, error) {
	p := &snapshot.Part{}
	for _, f := range r.Files {
		p.Files = append(p.Files, snapshot.FileInfo{
			Name: f.Name, Kind: snapshot.Kind(f.Kind), Table: int(f.Table), Shard: int(f.Shard), Rows: f.Rows, Bytes: f.Bytes, SHA256: f.Sha256, Total: f.Total,
		})
	}
	return p, p.Digest.UnmarshalBinary(r.Digest)
}

func toStats(st ps.Stats) *psv1.StatsResponse {
	r := &psv1.StatsResponse{DenseBytes: st.DenseBytes, Staged: int64(st.Staged), SnapshotFailures: int64(st.SnapshotFailures)}
	for _, t := range st.Tables {
		r.Tables = append(r.Tables, &psv1.TableStats{Name: t.Name, Rows: t.Rows, Bytes: t.Bytes, Expired: t.Removed.Expired, Evicted: t.Removed.Evicted})
	}
	return r
}

func fromStats(r *psv1.StatsResponse) ps.Stats {
	st := ps.Stats{DenseBytes: r.DenseBytes, Staged: int(r.Staged), SnapshotFailures: int(r.SnapshotFailures)}
	for _, t := range r.Tables {
		st.Tables = append(st.Tables, ps.TableStats{Name: t.Name, Rows: t.Rows, Bytes: t.Bytes, Removed: table.Removed{Expired: t.Expired, Evicted: t.Evicted}})
	}
	return st
}

func toProbe(p ps.Probe) *psv1.ProbeResponse {
	r := &psv1.ProbeResponse{Host: p.Host, Trainers: uint32(p.Trainers), Rows: p.Rows, Bytes: p.Bytes, Room: p.Room}
	for _, d := range p.Disks {
		out := &psv1.DiskProbe{Of: d.Of, Dir: d.Dir, Block: d.Block, Failed: d.Failed}
		for _, t := range d.Syncs {
			out.SyncNanos = append(out.SyncNanos, int64(t))
		}
		r.Disks = append(r.Disks, out)
	}
	return r
}

func fromProbe(r *psv1.ProbeResponse) ps.Probe {
	p := ps.Probe{Host: r.Host, Trainers: int(r.Trainers), Rows: r.Rows, Bytes: r.Bytes, Room: r.Room}
	for _, d := range r.Disks {
		out := ps.DiskProbe{Of: d.Of, Dir: d.Dir, Block: d.Block, Failed: d.Failed}
		for _, t := range d.SyncNanos {
			out.Syncs = append(out.Syncs, time.Duration(t))
		}
		p.Disks = append(p.Disks, out)
	}
	return p
}

// manifest is a snapshot's description as it is sent: with how large the file is that has it, which that itself does not say.
type manifest struct {
	ps.SnapshotInfo

	ManifestBytes int64 `json:"manifest_bytes,omitempty"`
}

// toManifest renders a snapshot's description; nil stays empty.
func toManifest(info *ps.SnapshotInfo) ([]byte, error) {
	if info == nil {
		return nil, nil
	}
	b, err := json.Marshal(manifest{*info, info.Manifest})
	if err != nil {
		return nil, fmt.Errorf("ps: manifest: %w", err)
	}
	return b, nil
}

func fromManifest(b []byte, path string) (*ps.SnapshotInfo, error) {
	if len(b) == 0 {
		return nil, nil
	}
	m := &manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("ps: manifest: %w", err)
	}
	m.Manifest, m.Path = m.ManifestBytes, path
	return &m.SnapshotInfo, nil
}

func toReport(member uint64, r ps.Report) *psv1.ReportRequest {
	return &psv1.ReportRequest{
		Member: member, Generation: r.Generation, Phase: r.Phase, Owned: r.Owned, Done: r.Done, Concluded: r.Concluded, Finished: r.Finished, Splits: r.Splits,
		Delegates: toDelegation(r.Delegates),
	}
}

func fromReport(r *psv1.ReportRequest) ps.Report {
	if r == nil {
		return ps.Report{}
	}
	report := ps.Report{
		Generation: r.Generation, Phase: r.Phase, Owned: r.Owned, Done: r.Done, Concluded: r.Concluded, Finished: r.Finished, Splits: r.Splits,
	}
	if r.Delegates != nil {
		d := fromDelegation(r.Delegates)
		report.Delegates = &d
	}
	return report
}

func toDelegation(d *ps.Delegation) *psv1.Delegation {
	if d == nil {
		return nil
	}
	out := &psv1.Delegation{Run: d.Run, Ending: uint32(d.Ending)}
	for _, task := range d.Ended {
		out.Ended = append(out.Ended, int32(task))
	}
	return out
}

func fromDelegation(d *psv1.Delegation) ps.Delegation {
	out := ps.Delegation{Run: d.GetRun(), Ending: ps.Ending(d.GetEnding())}
	for _, task := range d.GetEnded() {
		out.Ended = append(out.Ended, int(task))
	}
	return out
}

func toRows(r *table.Rows) *psv1.Rows {
	return &psv1.Rows{Keys: r.Keys, Times: r.Times, Counts: r.Counts, Weights: r.Weights, State: r.State}
}

// fromRows appends rows to dst, which keeps their memory where it has none. Errors: [wire.ErrProtocol].
func fromRows(r *psv1.Rows, dst *table.Rows) error {
	n := len(r.GetKeys())
	if len(r.GetTimes()) != n || len(r.GetCounts()) != n || n == 0 && len(r.GetWeights())+len(r.GetState()) > 0 || n > 0 && (len(r.Weights)%n != 0 || len(r.State)%n != 0) {
		return fmt.Errorf("ps: %d rows with %d times, %d counts, %d weights and %d values of state: %w",
			n, len(r.GetTimes()), len(r.GetCounts()), len(r.GetWeights()), len(r.GetState()), wire.ErrProtocol)
	}
	if cap(dst.Keys) == 0 && n > 0 {
		*dst = table.Rows{Keys: r.Keys, Times: r.Times, Counts: r.Counts, Weights: r.Weights, State: r.State}
		return nil
	}
	dst.Keys, dst.Times, dst.Counts = append(dst.Keys, r.GetKeys()...), append(dst.Times, r.GetTimes()...), append(dst.Counts, r.GetCounts()...)
	dst.Weights, dst.State = append(dst.Weights, r.GetWeights()...), append(dst.State, r.GetState()...)
	return nil
}

func toTally(tables []tally.Slots) *psv1.TallyResponse {
	out := &psv1.TallyResponse{Tables: uint32(len(tables))}
	for t, slots := range tables {
		for slot, s := range slots {
			if s == nil {
				continue
			}
			x := &psv1.SlotTally{
				Table: uint32(t), Slot: uint32(slot), Rows: s.Rows, Once: s.Once, Timeless: s.Timeless, Waiting: s.Waiting,
				Occurrences: s.Occurrences, Norms: s.Norms, Oldest: s.Ages.Max,
			}
			s.Ages.Each(func(bucket int, n int64) { x.Buckets, x.Ages = append(x.Buckets, uint32(bucket)), append(x.Ages, n) })
			out.Slots = append(out.Slots, x)
		}
	}
	return out
}

// fromTally is the inverse of toTally. Errors: [wire.ErrProtocol].
func fromTally(r *psv1.TallyResponse) ([]tally.Slots, error) {
	if r.Tables > maxTables {
		return nil, fmt.Errorf("ps: a tally of %d tables: %w", r.Tables, wire.ErrProtocol)
	}
	out := make([]tally.Slots, r.Tables)
	for t := range out {
		out[t] = tally.New()
	}
	for _, x := range r.Slots {
		if x.GetTable() >= r.Tables || x.GetSlot() >= fid.NumSlots || len(x.GetBuckets()) != len(x.GetAges()) {
			return nil, fmt.Errorf("ps: a tally of slot %d of table %d of %d, with %d buckets of %d: %w",
				x.GetSlot(), x.GetTable(), r.Tables, len(x.GetBuckets()), len(x.GetAges()), wire.ErrProtocol)
		}
		s := out[x.Table].At(int(x.Slot))
		s.Rows, s.Once, s.Timeless, s.Waiting, s.Occurrences, s.Norms, s.Ages.Max = x.Rows, x.Once, x.Timeless, x.Waiting, x.Occurrences, x.Norms, x.Oldest
		for i, bucket := range x.Buckets {
			if bucket >= tally.NumBuckets {
				return nil, fmt.Errorf("ps: a tally with an age in bucket %d of %d: %w", bucket, tally.NumBuckets, wire.ErrProtocol)
			}
			s.Ages.Put(int(bucket), x.Ages[i])
		}
	}
	return out, nil
}

// maxTables bounds what is made room for.
const maxTables = 1 << 16
