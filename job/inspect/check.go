package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/transforms/parse"
)

const (
	// checkPatience bounds the patience with brokers while a job is checked, and with headers.
	checkPatience = 5 * time.Second
	// headersRead is in how many files at most the header is looked at: those of one data set mostly agree.
	headersRead = 8
)

// Check looks for everything that would keep a job from running, without changing anything and without reading data, but for the beginnings of
// the first files, and the first batch of those whose end is not known: the graph is planned, secrets, files, side tables and brokers are looked for, and whether what the job writes can be
// written. Findings are what is wrong with the job; an error says that the check itself failed.
func Check(ctx context.Context, cfg *spec.Config) ([]spec.Finding, error) {
	var findings []spec.Finding
	add := func(path string, err error) {
		for _, e := range flatten(err) {
			f := spec.Finding{Path: path, Message: failure.Plain(e)}
			if i := slices.IndexFunc(findings, func(g spec.Finding) bool { return g.Message == f.Message }); i < 0 {
				findings = append(findings, f)
			} else if findings[i].Path == "" { // the plan has met it too, and does not know where
				findings[i].Path = path
			}
		}
	}
	if _, err := wiring.BuildPlan(cfg); err != nil {
		add("", err)
	}
	probe := func(r wiring.Reading) (splits int) {
		if r.Source == nil {
			return 0
		}
		if b, ok := r.Source.Value().(component.Brief); ok { // check reports a wrong address
			brief := spec.SourceOf(r.Source.Name(), b.Brief(0, checkPatience))
			r.Source = &brief
		}
		var err error
		var found []pipeline.Split
		if r.Source.Columnar() {
			opts := r.ParseOptions()
			var src pipeline.Source[*pipeline.Batch]
			if src, err = r.OpenColumns(opts); err == nil {
				found, err = src.Splits(ctx)
			}
			if err == nil && cfg.Train.OnBadRow == "fail" {
				err = checkReadable(ctx, r.Name, src, found)
			}
		} else {
			var src pipeline.Source[*pipeline.Block]
			if src, err = r.OpenBlocks(); err == nil {
				found, err = src.Splits(ctx)
			}
			if err == nil && r.Source.FileList() != nil {
				err = checkBeginnings(ctx, r, found, cfg.Train.OnBadRow == "fail")
			}
		}
		if err != nil {
			add(r.KeyOf(err), err)
		}
		return len(found)
	}
	if err := checkTables(ctx, cfg); err != nil {
		add("parse.joins", err)
	}
	splits := probe(wiring.TrainReading(cfg, 0))
	probe(wiring.EvalReading(cfg))
	if _, err := wiring.ClientConfig(&cfg.PS); err != nil {
		add("ps", err)
	}
	if wrong, ok := errors.AsType[*spec.ConfigError](cfg.CheckPlaces(ctx)); ok {
		for _, f := range wrong.Faults {
			add(f.Path, errors.New(f.Message))
		}
	}
	checkPlaces(cfg, add)
	checkRunner(ctx, cfg, splits, add)
	if m, err := wiring.Model(cfg); err == nil { // else the plan has reported it
		key, fits := "dir", stored.Continues
		path, err := stored.FindSnapshot(stored.SnapshotsIn(cfg))
		if err != nil { // there is none yet
			key, fits = "restore.from", stored.Fits
			path, _, err = stored.Beginning(ctx, cfg, m.Layout(), false)
		}
		if err == nil && path != "" {
			err = checkSnapshot(cfg, m.Layout(), path, fits)
		}
		if err != nil {
			add(key, err)
		}
	}
	return findings, nil
}

// checkReadable reports files that Splits could not look into, in the words of training, which ends at the first of them.
func checkReadable(ctx context.Context, name string, src pipeline.Source[*pipeline.Batch], splits []pipeline.Split) (err error) {
	if !src.Bounded() { // no end is what its splits have
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	env := &pipeline.Env{Source: name}
	defer func() { err = errors.Join(err, env.CloseResources()) }()
	unknown := slices.DeleteFunc(slices.Clone(splits), func(s pipeline.Split) bool { return s.End != pipeline.NoPosition })
	for _, s := range unknown[:min(len(unknown), headersRead)] {
		// That files are slow to read is no fault of the job.
		if err := begins(ctx, env, src, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// begins reads the first batch of a split.
func begins(ctx context.Context, env *pipeline.Env, src pipeline.Source[*pipeline.Batch], s pipeline.Split) (err error) {
	in, err := src.Open(ctx, env, s, s.Start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	b, err := in.Next(ctx)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	b.Release()
	return nil
}

// recordsChecked is how many records are looked at in a file whose beginning is checked.
const recordsChecked = 20

// checkBeginnings reports what parsing refuses in the header of a file, such as that it lacks a column, in the words of
// training, and files that begin with bad rows alone. strict reports any bad row among their first records.
func checkBeginnings(ctx context.Context, r wiring.Reading, splits []pipeline.Split, strict bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if b, ok := r.Source.Value().(component.Brief); ok {
		brief := spec.SourceOf(r.Source.Name(), b.Brief(recordsChecked, checkPatience))
		r.Source = &brief
	}
	src, err := r.OpenBlocks()
	if err != nil {
		return err
	}
	opts := r.ParseOptions()
	opts.Format = parse.Format(r.Format)
	bad := &keptBad{}
	env := &pipeline.Env{Source: r.Name, BadRows: bad}
	defer func() { err = errors.Join(err, env.CloseResources()) }()
	p, err := parse.New(opts).Open(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	s := sampling[*pipeline.Block]{
		source: src, env: env, splits: splits, each: recordsChecked,
		take: func(ctx context.Context, _ int, b *pipeline.Block) error {
			return p.Process(ctx, b, func(out *pipeline.Batch) error {
				out.Release()
				return nil
			})
		},
	}
	var mu sync.Mutex
	for i := 0; i < min(len(splits), headersRead) && ctx.Err() == nil; i++ {
		before := bad.num()
		// That files are slow to read is no fault of the job, and a fault of one is mostly that of the others too.
		n, err := s.split(ctx, i, &mu)
		all := bad.num()-before >= n // of the good ones a holdout may have taken all
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		case len(bad.first) == 0:
		case all && n >= recordsChecked:
			return fmt.Errorf("the first %d records of %s are all bad rows; the first: %s", n, splits[i].Name, bad.first[0])
		case all:
			return fmt.Errorf("all records of %s are bad rows; the first: %s", splits[i].Name, bad.first[0])
		case strict:
			return fmt.Errorf("train.on_bad_row is fail, and %s begins with a bad row: %s", splits[i].Name, bad.first[0])
		}
		bad.forget()
	}
	return nil
}

// checkRunner reports what would keep a job service from running the graph. splits is how many the source has, 0 if that is not known.
func checkRunner(ctx context.Context, cfg *spec.Config, splits int, add func(path string, err error)) {
	if !cfg.Submits() {
		return
	}
	b := &cfg.Beam
	dial := func(key, addr, what string) {
		if addr == "" {
			return
		}
		d := net.Dialer{Timeout: checkPatience}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			add(key, fmt.Errorf("nothing answers at %s, %s: %w", addr, what, err))
			return
		}
		defer func() { _ = conn.Close() }() // nothing was said
		if key == "beam.endpoint" && cfg.Runner != spec.RunnerDataflow && speaksHTTP1(conn) {
			add(key, fmt.Errorf("%s answers HTTP, as Flink's web port 8081 does; Beam's job server has port 8099", addr))
		}
	}
	host, _, _ := net.SplitHostPort(b.Endpoint)
	here := cfg.Runner != spec.RunnerDataflow && isLoopback(host)
	if cfg.Runner != spec.RunnerDataflow && b.Environment == spec.Loopback && !here {
		add("beam.environment", fmt.Errorf("is loopback, and the job service is at %s: the runner's workers look for the executors at localhost, which is this machine for none but workers that are here; use process or external", b.Endpoint))
	}
	if b.Environment == spec.Process && here {
		if _, err := exec.LookPath(b.EnvironmentConfig); err != nil {
			add("beam.environment_config", fmt.Errorf("is what the runner's workers on this machine are to start: %w; give the path of this program", err))
		}
	}
	dial("beam.endpoint", b.Endpoint, "where the job server should be; is it running?")
	if _, stream := cfg.Source.Stream(); stream { // else an embedded cluster is there with its job alone
		dial("beam.flink_rest", b.FlinkREST, "where Flink's REST interface should be")
	}
	if b.Environment == spec.External {
		dial("beam.environment_config", b.EnvironmentConfig, "where the worker pool should be; start `monolith worker-pool` beside each of the runner's workers")
	}
	if splits > 0 && b.Parallelism > splits {
		add("beam.parallelism", fmt.Errorf("is %d, and the source has %d splits, each of which one executor reads: what is above has nothing to do", b.Parallelism, splits))
	}
}

// speaksHTTP1 reports whether a server answers the greeting of gRPC as one of HTTP/1 does.
func speaksHTTP1(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // it says so by the error of what follows
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return false
	}
	head := make([]byte, len("HTTP/1"))
	n, _ := io.ReadFull(conn, head)
	return string(head[:n]) == "HTTP/1"
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkSnapshot reports whether training can begin with a snapshot.
func checkSnapshot(cfg *spec.Config, l *param.Layout, path string, fits func(*spec.Config, *param.Layout, *snapshot.Info) ([]string, error)) error {
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return err
	}
	if _, err := fits(cfg, l, info); err != nil {
		return err
	}
	if _, err := l.Fit(info.Shape(), stored.Policies(cfg)); err != nil {
		return fmt.Errorf("snapshot %s does not fit the model: %w; %s", path, err, fault.OtherModel)
	}
	return nil
}

// checkTables reads the side tables, as every worker will.
func checkTables(ctx context.Context, c *spec.Config) error {
	if len(c.Parse.Joins) == 0 {
		return nil
	}
	r := wiring.TrainReading(c, 0)
	opts := r.ParseOptions()
	env := &pipeline.Env{}
	defer env.CloseResources() //nolint:errcheck // they were only read
	var p io.Closer
	var err error
	if c.Source.Columnar() {
		p, err = parse.NewColumns(opts).Open(ctx, env)
	} else {
		opts.Format = parse.Format(r.Format)
		p, err = parse.New(opts).Open(ctx, env)
	}
	if err != nil {
		return err
	}
	return p.Close()
}

// checkPlaces looks whether what the job writes can be written.
func checkPlaces(c *spec.Config, add func(path string, err error)) {
	place := func(path string, err error) {
		if err != nil {
			add(path, fmt.Errorf("%w; name another place, or make this one one that can be written to", err))
		}
	}
	place("dir", fsx.CanMake(stored.SnapshotsIn(c)))
	if o := stored.LogOptions(c); o != nil && c.PS.WAL.Dir != "" {
		place("ps.wal.dir", fsx.CanMake(o.Dir))
	}
	output := func(to *spec.OutputTo, at string) {
		if to == nil || to.Value() == nil {
			return
		}
		if key, err := to.Value().CanOpen(); err != nil {
			add(fmt.Sprintf("%s.%s.%s", at, to.Name(), key), err)
		}
	}
	outputs := func(list []spec.Output, at string) {
		for i := range list {
			output(&list[i].To, fmt.Sprintf("%s[%d].to", at, i))
		}
	}
	outputs(c.Outputs, "outputs")
	outputs(c.Eval.Outputs, "eval.outputs")
	output(c.Predict.To, "predict.to")
	if d := c.Train.DeadLetter; c.Train.OnBadRow == "dead_letter" && d != nil && d.Value() != nil {
		if key, err := d.Value().CanOpen(stored.WorkerName()); err != nil {
			add("train.dead_letter."+d.Name()+"."+key, err)
		}
	}
}

// flatten takes joined errors and plan faults apart.
func flatten(err error) []error {
	if plan, ok := errors.AsType[*pipeline.PlanError](err); ok {
		return plan.Faults
	}
	return failure.Flatten(err)
}
