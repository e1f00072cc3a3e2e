package wiring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wire"
)

// Identity is what workers and shards of a job have in common.
func Identity(c *spec.Config, plan *pipeline.Plan, m model.Model) rpc.Identity {
	r, layout := c.Recipe(), m.Layout()
	graph := sha256.Sum256([]byte(m.String()))
	return rpc.Identity{
		Job: c.Name, Shape: layout.Shape().Hash(), Layout: layout.Hash(), Model: hex.EncodeToString(graph[:8]),
		Source: SourceOf(plan), Plan: plan.Hash(), Precision: Precision(&c.PS), Recipe: rpc.Recipe{Hash: r.Hash(), Text: string(r.JSON())},
	}
}

// SourceOf names what a plan reads: positions are kept, and workers share splits, under it.
func SourceOf(plan *pipeline.Plan) string {
	var names []string
	for _, s := range plan.Sources() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}

func recovery(c *spec.Config) ps.RecoveryMode {
	if c.PS.Recovery == "partial" {
		return ps.Partial
	}
	return ps.Rollback
}

// Precision is the format in which rows and gradients travel. The schema has checked its name.
func Precision(p *spec.PS) param.Precision {
	precision, _ := param.ParsePrecision(p.Precision)
	return precision
}

// maxStaged is how many batches of a split may be staged at once.
func maxStaged(c *spec.Config) int { return max(c.Train.Prefetch.Push, 1) }

// ClusterOptions are those of a process with shards. The job's dir must be there. log, which may be nil, gets what is passed over of restore.from, all of which is
// read. Errors: [pipeline.ErrUnavailable].
func ClusterOptions(ctx context.Context, c *spec.Config, plan *pipeline.Plan, m model.Model, log *slog.Logger) (coordinator.Options, error) {
	o := coordinator.Options{
		Layout: m.Layout(), NumShards: c.PS.Shards, Dir: stored.SnapshotsIn(c), Keep: c.Snapshot.Keep, KeepFor: time.Duration(c.Snapshot.KeepFor),
		Incremental: c.Snapshot.Incremental, Every: time.Duration(c.Snapshot.Every), Tolerate: c.Snapshot.Tolerate,
		MaxStaged: maxStaged(c), Precision: Precision(&c.PS), Log: stored.LogOptions(c), Recovery: recovery(c), Lease: time.Duration(c.PS.Lease),
		ConsumerIdle: time.Duration(c.PS.ConsumerIdle),
		Meta:         map[string]string{"job": c.Name, "plan": plan.Hash(), "model": m.String()},
		Recipe:       c.Recipe().JSON(), Fit: stored.Policies(c), Carry: []string{stored.ReferenceBatchKey},
	}
	if b, err := m.Marshal(); err == nil { // else it has a loss or an operator of the program's own, and only the program can make it
		o.Model = &snapshot.Model{Name: c.Model.Name(), Version: graph.Version, Graph: b}
	}
	if !c.PS.Remote() { // else nobody trains in this process
		o.Threads = c.StepThreads()
	}
	for _, id := range c.Snapshot.Exempt {
		o.Exempt = append(o.Exempt, uint64(id))
	}
	var damaged []error
	var err error
	if o.From, damaged, err = stored.Beginning(ctx, c, m.Layout(), true); err != nil {
		return coordinator.Options{}, err
	}
	stored.WarnPassedOver(ctx, log, damaged, o.From)
	if o.Log != nil {
		if o.Log.Owner, err = stored.ID(c); err != nil {
			return coordinator.Options{}, err
		}
		dir := c.Dir
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		o.Log.Job = fmt.Sprintf("job %s in %s", c.Name, dir)
	}
	return o, nil
}

// Addrs are addresses of shards, of ps.addresses or not, as packages ps and rpc have them: with those of the standbys that the job has for them.
func Addrs(p *spec.PS, addrs []string) []string {
	out := slices.Clone(addrs)
	for i, addr := range out {
		if at := slices.Index(p.Addresses, addr); at >= 0 {
			out[i] = ps.JoinAddr(addr, p.Standby.Of(at))
		}
	}
	return out
}

// ClientConfig describes how processes of the job reach each other. It reads the token and the certificates, to see whether
// they are there. Errors: [pipeline.ErrConfig].
func ClientConfig(p *spec.PS) (wire.ClientConfig, error) {
	token, err := token(p)
	if err != nil {
		return wire.ClientConfig{}, err
	}
	c := wire.ClientConfig{TLS: p.TLS, Token: token}
	for _, addr := range slices.Concat(p.Addresses, p.Standby.Addresses) {
		if addr == "" { // a shard without a standby
			continue
		}
		cc, err := wire.NewClient(addr, c) // which connects to nobody
		if err == nil {
			err = cc.Close()
		}
		if err != nil {
			return c, fault.Config("ps.tls: %w", err)
		}
	}
	return c, nil
}

// token is where processes of the job ask for their token, which is read again when its file changes; nil without one.
func token(p *spec.PS) (secure.Token, error) {
	if p.Token.IsZero() {
		return nil, nil
	}
	if _, err := secure.Token(p.Token.Resolve).Ask(); err != nil {
		return nil, fault.Config("ps.token: %w", err)
	}
	return p.Token.Resolve, nil
}

// ServerConfig describes how a shard is reached. Errors: [pipeline.ErrConfig].
func ServerConfig(p *spec.PS) (wire.ServerConfig, error) {
	c := wire.ServerConfig{TLS: p.TLS}
	if p.Allow.IsZero() {
		token, err := token(p)
		if token != nil {
			c.Rules = []secure.Rule{{Right: secure.Coordinate, Token: token}}
		}
		return c, err
	}
	for _, x := range []struct {
		key   string
		right secure.Right
		who   *spec.Callers
	}{{"read", secure.Read, &p.Allow.Read}, {"train", secure.Train, &p.Allow.Train}, {"coordinate", secure.Coordinate, &p.Allow.Coordinate}} {
		if x.who.IsZero() {
			continue
		}
		rule := secure.Rule{Right: x.right, Names: x.who.Names}
		if !x.who.Token.IsZero() {
			if _, err := secure.Token(x.who.Token.Resolve).Ask(); err != nil {
				return c, fault.Config("ps.allow.%s.token: %w", x.key, err)
			}
			rule.Token = x.who.Token.Resolve
		}
		c.Rules = append(c.Rules, rule)
	}
	return c, nil
}

// RetryFor is how long calls try, as package wire means it: 0 would be its default there.
func RetryFor(p *spec.PS) time.Duration {
	if p.Retry == 0 {
		return -1
	}
	return time.Duration(p.Retry)
}

// Dial connects to shards in other processes. wait is that of [rpc.Options].
func Dial(ctx context.Context, c *spec.Config, plan *pipeline.Plan, m model.Model, wait time.Duration, log *slog.Logger, hooks *ps.Hooks) (*rpc.Remote, error) {
	conf, err := ClientConfig(&c.PS)
	if err != nil {
		return nil, err
	}
	return rpc.Dial(ctx, rpc.Options{
		Identity: Identity(c, plan, m), Layout: m.Layout(), Addrs: Addrs(&c.PS, c.PS.Addresses), Config: conf, RetryFor: RetryFor(&c.PS),
		WaitFor: wait, MaxMessage: int(c.PS.MaxMessage), Logger: log, Hooks: hooks,
	})
}
