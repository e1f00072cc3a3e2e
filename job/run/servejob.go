package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/replica"
	serve "github.com/monolith-go/monolith/serving"
)

// ServedJob is a job whose model is served while it is trained.
type ServedJob struct {
	// Name is what requests call the model; empty: the job's.
	Name string
	// Load reads the job, now and whenever its shards turn out to be those of another model.
	Load func() (*spec.Config, error)
}

// servedJob serves the newest state of a job: of its shards, where those are in processes of their own, otherwise that of its newest snapshot.
type servedJob struct {
	o      *ServeModelsOptions
	name   string
	addr   string // where it is served
	load   func() (*spec.Config, error)
	first  *jobModel
	models *serve.Models
	// unfollowed is as of when what is served was when the log said last that the shards are not followed; nil: never. unread is why the job file could not be read the last time.
	unfollowed *time.Time
	unread     string
	// damaged are the snapshots that turned out to be so when they were loaded, by the checksum of their manifests; unserved is what the log said last of such.
	damaged  map[string]error
	unserved string
	better   uint64 // the snapshot that the log names last as better than the newest; 0: none
	log      *slog.Logger
}

// jobModel is the model of a job as its file has it.
type jobModel struct {
	cfg   *spec.Config
	model model.Model
	of    *export.Model
	id    string // equal of equal models
}

// jobModelOf makes the model of a job. Errors: [pipeline.ErrConfig].
func jobModelOf(cfg *spec.Config) (*jobModel, error) {
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, err
	}
	written, err := m.Marshal()
	if err != nil {
		return nil, fault.Config("job: the model of job %s cannot be served: %w", cfg.Name, err)
	}
	of, err := export.New(cfg.Model.Name(), written, cfg.Recipe().JSON())
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	of.From.Job = cfg.Name
	return &jobModel{cfg, m, of, string(written) + string(of.Recipe)}, nil
}

// servedJobs reads the jobs that are served. Errors: [pipeline.ErrConfig].
func (o *ServeModelsOptions) servedJobs(models *serve.Models) ([]*servedJob, error) {
	var out []*servedJob
	for _, j := range o.Jobs {
		cfg, err := j.Load()
		if err != nil {
			return nil, err
		}
		if o.RequestLog.Dir != "" {
			if err := cfg.Destination("--request-log", o.RequestLog.Dir, true); err != nil {
				return nil, err
			}
		}
		first, err := jobModelOf(cfg)
		if err != nil {
			return nil, err
		}
		s := &servedJob{o: o, name: cmp.Or(j.Name, cfg.Name), load: j.Load, first: first, models: models}
		s.log = o.Logger.With("model", s.name)
		if err := checkName(s.name, s.name); err != nil {
			return nil, err
		}
		if err := models.Expect(s.name); err != nil {
			return nil, fault.Config("job: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// run serves at an address until the context ends. Each model that the job comes to have is a version of its own.
func (s *servedJob) run(ctx context.Context, addr string) {
	s.addr = addr
	m := s.first
	for number := int64(1); ctx.Err() == nil; number++ {
		next, err := s.serve(ctx, m, number)
		if err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "a job cannot be served", "err", err)
			next = s.changed(ctx, m) // with this model nothing comes of it
		}
		m = next
	}
}

// serve serves one model of the job until it has another, which it returns, or the context ends.
func (s *servedJob) serve(ctx context.Context, m *jobModel, number int64) (next *jobModel, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("job: the name of this machine: %w", err)
	}
	name := fmt.Sprintf("monolith serve %s at %s %s", s.name, host, s.addr)
	r := replica.New(replica.Options{Layout: m.of.Graph.Layout(), Name: name[:min(len(name), ps.MaxConsumerName)], Every: s.o.Every, Logger: s.log})
	v, err := serve.NewVersion(ctx, served{r, m.of}, ServingRecipe(s.o.Components))
	if err != nil {
		return nil, err
	}
	over, cancel := context.WithCancel(ctx)
	var put sync.WaitGroup
	put.Go(func() { s.put(over, r, v, number) })
	defer put.Wait()
	defer cancel()
	id, _ := s.loadNewest(ctx, r, m, 0)
	for m.cfg.PS.Remote() {
		if next := s.follow(ctx, r, m); next != nil || ctx.Err() != nil {
			return next, nil
		}
	}
	if id == 0 {
		s.log.WarnContext(ctx, "there is no snapshot yet, and the shards of the job are in the process that trains it, which nobody can ask (ps.addresses is empty)")
	}
	for wait(ctx, s.o.Poll) {
		if id, err = s.loadNewest(ctx, r, m, id); err != nil {
			if next := s.another(ctx, m); next != nil {
				return next, nil
			}
		}
	}
	return nil, nil
}

// served is a replica as a server reads it.
type served struct {
	*replica.Replica
	of *export.Model
}

// Model implements [serve.Params].
func (s served) Model() *export.Model { return s.of }

// Reader implements [serve.Params].
func (s served) Reader() serve.Reader { return s.Replica.Reader() }

// put serves a version once its replica has a state. Otherwise it closes it.
func (s *servedJob) put(ctx context.Context, r *replica.Replica, v *serve.Version, number int64) {
	select {
	case <-r.Filled():
		s.models.Put(s.name, number, v)
		s.log.InfoContext(ctx, "a job is served", "version", number, "rows", r.Status().Rows)
	case <-ctx.Done():
		if err := v.Close(); err != nil {
			s.log.ErrorContext(ctx, "a version did not close", "version", number, "err", err)
		}
	}
}

// loadNewest loads the newest good snapshot into a replica, unless it has it, and returns its number; 0: there is none yet. It logs what is wrong with damaged
// ones, once for each. Errors: those of the snapshots where none can be served.
func (s *servedJob) loadNewest(ctx context.Context, r *replica.Replica, m *jobModel, has uint64) (id uint64, err error) {
	entries, _ := stored.FindSnapshots(stored.SnapshotsIn(m.cfg)) // none is no fault of shards that run
	if len(entries) == 0 {
		return has, nil
	}
	from := stored.Local(entries)
	// A lower number than that of what is served is newer where the job has started over: then the folder does not have that.
	old := func(info *snapshot.Info) bool {
		return info.ID == has || info.ID < has && slices.ContainsFunc(entries, func(e snapshot.Entry) bool { return e.ID == has })
	}
	info, damaged, err := from.Use(func(info *snapshot.Info) error {
		if old(info) {
			return nil
		}
		if why := s.damaged[info.Checksum]; why != nil {
			return why
		}
		of, err := export.Open(ctx, info.Path)
		if err == nil {
			err = r.Load(ctx, of)
		}
		if errors.Is(err, snapshot.ErrCorrupt) {
			if s.damaged == nil {
				s.damaged = map[string]error{}
			}
			s.damaged[info.Checksum] = err
		}
		return err
	})
	used := "none"
	if err != nil {
		damaged = []error{err}
	} else {
		used = info.Path
	}
	if text := fmt.Sprint(damaged); len(damaged) > 0 && text != s.unserved { // it is tried every few seconds
		s.log.WarnContext(ctx, "a snapshot cannot be served", "used", used, "err", errors.Join(damaged...))
		s.unserved = text
	} else if len(damaged) == 0 {
		s.unserved = ""
	}
	if err != nil {
		return has, err
	}
	if old(info) {
		return has, nil
	}
	s.compareWithBest(ctx, m, info)
	return info.ID, nil
}

// compareWithBest logs that an earlier snapshot than the one that is served was better at the evaluation of its epoch, once for each such: it is an export of that which is to be served then.
func (s *servedJob) compareWithBest(ctx context.Context, m *jobModel, newest *snapshot.Info) {
	best, err := stored.BestIn(fsx.Local{}, stored.SnapshotsIn(m.cfg))
	if err != nil || best == nil || best.ID == newest.ID || best.ID == s.better {
		return
	}
	s.better = best.ID
	s.log.WarnContext(ctx, "the newest snapshot is served, and an earlier one is that of the best evaluation: to serve that, export its folder (monolith export) and serve the export",
		"snapshot", newest.ID, "path", best.Path, "which", stored.WhichIs(fsx.Local{}, best))
}

// follow makes a replica follow the job's shards until it has to start over: with another model, which it returns, or with the same.
func (s *servedJob) follow(ctx context.Context, r *replica.Replica, m *jobModel) (next *jobModel) {
	plan, err := wiring.BuildPlan(m.cfg)
	if err == nil {
		remote, dialled := wiring.Dial(ctx, m.cfg, plan, m.model, 0, s.log, nil)
		if err = dialled; err == nil {
			err = errors.Join(r.Follow(ctx, remote), remote.Close(context.WithoutCancel(ctx)))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	if since := r.AsOf(); s.unfollowed == nil || !s.unfollowed.Equal(since) { // said once: another try comes every ps.retry
		s.unfollowed = &since
		s.log.WarnContext(ctx, "the shards of a job are not followed; what is served becomes older", "since", since, "err", err)
	}
	if next := s.another(ctx, m); next != nil {
		return next
	}
	wait(ctx, time.Second)
	return nil
}

// another is the job's model if it is another one now, or nil.
func (s *servedJob) another(ctx context.Context, m *jobModel) *jobModel {
	cfg, err := s.load()
	if err == nil {
		var now *jobModel
		if now, err = jobModelOf(cfg); err == nil && now.id != m.id {
			return now
		}
		if err == nil {
			m.cfg = cfg // its shards may be elsewhere
		}
	}
	if text := fmt.Sprint(err); err != nil && text != s.unread { // it is read every few seconds
		s.unread = text
		s.log.WarnContext(ctx, "the job file cannot be read again", "err", err)
	} else if err == nil {
		s.unread = ""
	}
	return nil
}

// changed waits until the job's model is another one; nil: the context has ended.
func (s *servedJob) changed(ctx context.Context, m *jobModel) *jobModel {
	for wait(ctx, s.o.Poll) {
		if next := s.another(ctx, m); next != nil {
			return next
		}
	}
	return nil
}

// wait waits, and reports whether the context has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
