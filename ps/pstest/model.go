package pstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// modelSplit is what the rules of exactly-once gradients (ARCHITECTURE.md) say a shard has of a split: the simple reference of the real one.
type modelSplit struct {
	applied ps.Progress
	staged  []modelBatch
	epoch   uint64
	owner   int
}

type modelBatch struct{ from, to, rows int64 }

func (m *modelSplit) end() int64 {
	if n := len(m.staged); n > 0 {
		return m.staged[n-1].to
	}
	return int64(m.applied.Position)
}

func (m *modelSplit) stage(owner int, epoch uint64, b modelBatch, maxStaged int) error {
	end := m.end()
	switch {
	case m.owner != owner || m.epoch != epoch:
		return ps.ErrFenced
	case end >= 0 && b.to <= end:
		return nil
	case end >= 0 && b.from > end:
		return ps.ErrGap
	case end >= 0 && b.from < end:
		return ps.ErrOverlap
	case len(m.staged) == maxStaged:
		return ps.ErrBusy
	}
	m.staged = append(m.staged, b)
	return nil
}

func (m *modelSplit) commit(owner int, epoch uint64, to int64) error {
	if m.owner != owner || m.epoch != epoch || to <= int64(m.applied.Position) {
		return nil
	}
	for i, b := range m.staged {
		if b.to != to {
			continue
		}
		for _, b := range m.staged[:i+1] {
			m.applied.Position = position.Position(b.to)
			m.applied.Rows += b.rows
			if b.rows > 0 {
				m.applied.Batches++
			}
		}
		m.staged = m.staged[i+1:]
		return nil
	}
	return ps.ErrGap
}

// testModel drives the streams of two clients to one shard with random messages, sensible and not, and compares every
// answer with the model.
func (s suite) testModel(t *testing.T) {
	t.Parallel()
	const maxStaged = 3
	ids := someIDs(5)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		var conns []ps.Conn
		c := s.must(t, coordinator.Options{Layout: countLayout(), MaxStaged: maxStaged, WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn {
			conns = append(conns, conn)
			return conn
		}})
		client(t, c, "a")
		client(t, c, "b")
		names := []string{"x", "y"}
		model := map[string]*modelSplit{}
		for _, n := range names {
			model[n] = &modelSplit{applied: ps.Progress{Position: -1}, owner: -1}
		}
		ctx := t.Context()
		for step := range 400 {
			name, who := names[r.IntN(2)], r.IntN(2)
			m, id := model[name], ps.SplitID{Source: Source, Split: name}
			if m.owner >= 0 && r.IntN(4) > 0 {
				who = m.owner
			}
			epoch := m.epoch - min(m.epoch, uint64(r.IntN(8)/7))
			var got, want error
			var what string
			switch r.IntN(12) {
			case 0, 1:
				epoch = m.epoch + uint64(r.IntN(3))
				var st ps.SplitState
				st, _, got = conns[who].Acquire(ctx, id, epoch)
				what = fmt.Sprint("acquire ", epoch)
				if epoch <= m.epoch {
					want = ps.ErrFenced
					break
				}
				m.epoch, m.owner = epoch, who
				wantState := ps.SplitState{Applied: m.applied}
				p := m.applied
				for _, b := range m.staged {
					p.Position, p.Rows, p.Batches = position.Position(b.to), p.Rows+b.rows, p.Batches+min(b.rows, 1)
					wantState.Staged = append(wantState.Staged, p)
				}
				if diff := cmp.Diff(wantState, st, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d step %d: %s (-want +got):\n%s", seed, step, what, diff)
				}
			case 2:
				what = "abort"
				_, got = conns[who].Control(ctx, []ps.Control{{Kind: ps.Abort, Split: id, Epoch: epoch}})
				if m.owner == who && m.epoch == epoch {
					m.staged = nil
				}
			case 3, 4, 5, 6:
				to := m.end() - r.Int64N(3)
				what = fmt.Sprint("commit ", to)
				_, got = conns[who].Control(ctx, []ps.Control{{Kind: ps.Commit, Split: id, Epoch: epoch, To: to}})
				want = m.commit(who, epoch, to)
			default:
				from := max(m.end(), 0)
				if r.IntN(4) == 0 {
					from = max(from+r.Int64N(5)-2, 0)
				}
				n := r.Int64N(3)
				b := modelBatch{from, from + n + r.Int64N(2), n}
				what = fmt.Sprintf("stage %+v", b)
				u := countUpdate(name, 0, b.rows, ids)
				u.From, u.To = b.from, b.to
				_, got = conns[who].Stage(ctx, nil, epoch, u)
				want = m.stage(who, epoch, b, maxStaged)
			}
			if !errors.Is(got, want) {
				t.Fatalf("seed %d step %d: client %d %s %s: %v, want %v (%+v)", seed, step, who, name, what, got, want, *m)
			}
		}
		total, want := int64(0), map[string]ps.Progress{}
		for n, m := range model {
			total += m.applied.Rows
			if m.applied.Position >= 0 {
				want[n] = m.applied
			}
		}
		if diff := cmp.Diff(want, progress(t, c)); diff != "" {
			t.Errorf("seed %d: progress (-model +shard):\n%s", seed, diff)
		}
		var first table.Rows
		if ok := row(t, c, ids[0], &first); ok != (total > 0 || ok) || ok && first.Weights[0] != float32(total) {
			t.Errorf("seed %d: row %+v, the model has applied %d examples", seed, first, total)
		}
	}
}
