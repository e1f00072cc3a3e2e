package run

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
	"github.com/monolith-go/monolith/replica"
	serve "github.com/monolith-go/monolith/serving"
	"github.com/monolith-go/monolith/serving/rows"
	"github.com/monolith-go/monolith/transforms/parse"
)

// ServeModelsOptions say what is served where, and how requests are answered. It needs HTTP or GRPC, and
// Exports, ConfigFile or Jobs; the zero value of everything else works.
type ServeModelsOptions struct {
	// Exports are native exports, or folders of exports by their numbers, as DIR or NAME=DIR. Without a name it is that of the folder, or of the one above a folder that
	// is a number. Those of stores are named by URLs, and copied to this machine.
	Exports []string
	// ConfigFile, if not empty, has models beside Exports, as TensorFlow Serving's --model_config_file ([serve.ReadModelConfigs]). It is read again when it has changed.
	ConfigFile string
	// Cache is where those of stores are copied.
	Cache ExportCache
	// Jobs are jobs whose models are served while they are trained.
	Jobs []ServedJob
	// Shard, if not nil, makes the server a row shard of its exports: others read the rows of this part over gRPC, and nothing is predicted here.
	Shard *native.Part
	// Rows say where the rows of exports are read, if not here.
	Rows RowShards
	// Every is how often the shards of jobs are asked what has changed; 0: every 250 ms.
	Every time.Duration
	// Policy says which of a folder's exports are served.
	Policy serve.Policy
	// Poll is how often folders, also those of stores, and those of the snapshots of jobs whose shards cannot be asked, are looked into; 0: every 2 s.
	Poll time.Duration
	// HTTP is the address for HTTP, /healthz and /metrics; empty: there is none.
	HTTP string
	// GRPC is the address for gRPC; empty: there is none.
	GRPC string
	// Reload lets callers choose over gRPC what is served, by folders of this machine.
	Reload bool
	// TLS encrypts; its CA makes client certificates required.
	TLS *secure.TLS
	// TokenFile, if not empty, has the token that callers must bear. It may change.
	TokenFile string
	// Insecure allows an address that others than this machine's processes can reach though nothing asks them who they are.
	Insecure bool
	// Pushes says who may push rows to exports, if anybody.
	Pushes Pushes
	// Limits are those of requests; its Models, Log, Guard, Pushers, Metrics and Logger are set here. Where its PinThreads pins, [runtime.GOMAXPROCS] is one more until the return.
	Limits serve.Options
	// RequestLog says which requests are kept; without a Dir none are. Its Metrics and Logger are set here.
	RequestLog serve.RequestLogOptions
	// Components are what recipes may name; nil: those of monolith.
	Components component.Set
	// Logger is never a global; nil: discard.
	Logger *slog.Logger
	// Register, if not nil, adds metrics of the caller's to those that are served.
	Register func(prometheus.Registerer) error
	// Ready, if not nil, is called once requests are answered, with the addresses for HTTP and gRPC; empty: none.
	Ready func(http, grpc string)
	// Drain, once closed, makes the server answer the requests it has and return without an error. nil: never.
	Drain <-chan struct{}
}

// Pushes say whether rows are pushed to the exports that are served: weights that are read in place of those of the export. The zero value: none are.
type Pushes struct {
	// Accept takes them.
	Accept bool
	// TokenFile, if not empty, has the token that callers must bear who push, and who may ask too. It may change.
	TokenFile string
	// MaxBytes is what rows that are not those of the exports may take in memory; 0: 1 GiB.
	MaxBytes int64
}

// DefaultPushedBytes is what rows that were pushed may take in memory if nobody says otherwise.
const DefaultPushedBytes = 1 << 30

// RowShards are servers with a Shard that have the rows of the same exports, as DIR, NAME=DIR or URL, and how they are reached. Without Addrs there are none.
type RowShards struct {
	// Addrs are their addresses for gRPC, of all of them, in the order of their numbers: HOST:PORT, or of several replicas HOST:PORT|HOST:PORT.
	Addrs []string
	// CacheBytes is what rows that were read may take here; 0: none are kept.
	CacheBytes int64
	// TLS, if not nil, encrypts.
	TLS *secure.TLS
	// TokenFile, if not empty, has the token to bear. It may change.
	TokenFile string
}

// replicaMark is between the addresses of the replicas of a row shard.
const replicaMark = "|"

// otherAddress says what to do about an address that cannot be listened at.
func otherAddress(flag string) string {
	return "end what listens there (another server, perhaps), or name another address of this machine with " + flag
}

// drainFor bounds how long requests that were begun are answered.
const drainFor = 30 * time.Second

// ServeModels answers requests for predictions until it is drained or the context ends. Errors: [pipeline.ErrConfig] for options that cannot be and for models of which no version
// can be opened, [pipeline.ErrUnavailable] for an address that cannot be listened at.
func ServeModels(ctx context.Context, o ServeModelsOptions) (err error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Poll, o.Components = cmp.Or(o.Poll, 2*time.Second), components.Or(o.Components)
	configs, mirrors, err := o.models()
	if err != nil {
		return err
	}
	for _, m := range mirrors {
		defer func() { err = errors.Join(err, m.close()) }()
	}
	if err := o.checkPushes(); err != nil {
		return err
	}
	conf, err := o.guard()
	if err != nil {
		return err
	}
	if err := o.checkShards(); err != nil {
		return err
	}
	reg, metrics, err := o.metrics()
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	from, hangUp, err := o.Rows.dial(metrics, o.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	models := serve.NewModels(serve.ModelsOptions{Recipe: ServingRecipe(o.Components), Rows: from, Part: o.Shard, Push: o.Pushes.params(), Logger: o.Logger, Loaded: metrics.Loaded, Verified: metrics.Verified})
	defer models.Close()
	metrics.Watch(models)
	jobs, err := o.servedJobs(models)
	if err != nil {
		return err
	}
	certificates, err := o.watchSecrets(reg, jobs)
	if err != nil {
		return err
	}
	defer certificates.Close()
	var unfetched []error // a model of which nothing was fetched has no export yet
	var unasked []*mirrored
	for _, m := range mirrors {
		if err := m.begin(ctx); err != nil && ctx.Err() != nil {
			return err
		} else if err != nil {
			unfetched, unasked = append(unfetched, err), append(unasked, m)
		}
	}
	file := &configFile{path: o.ConfigFile, beside: configs, policy: o.Policy, log: o.Logger, mayBeEmpty: o.Reload}
	if configs, err = file.read(); err != nil {
		return fault.Mark(fmt.Errorf("job: --model-config: %w", err), pipeline.ErrConfig, "")
	}
	if err := models.Configure(ctx, configs); err != nil {
		unserved, ok := errors.AsType[*serve.UnservedError](err)
		if ctx.Err() != nil || !ok || !o.Reload && len(jobs) == 0 && !models.Serves() {
			if len(unfetched) > 0 {
				return errors.Join(unfetched...)
			}
			return fault.Mark(fmt.Errorf("job: %w", cannotServe(configs, err)), pipeline.ErrConfig, "")
		}
		for i, m := range unasked {
			m.complain(unfetched[i], "it is asked again every --poll")
		}
		for _, err := range unserved.Models {
			o.Logger.ErrorContext(ctx, "nothing of a model can be served; the server is not ready until it can, and looks again every --poll", "poll", o.Poll, "err", err)
		}
	}
	var kept *serve.RequestLog
	if o.RequestLog.Dir != "" {
		o.RequestLog.Metrics, o.RequestLog.Logger = metrics, o.Logger
		if kept, err = serve.OpenRequestLog(o.RequestLog); err != nil {
			return fault.Mark(fmt.Errorf("job: --request-log: %w", err), pipeline.ErrConfig, "")
		}
		defer func() { err = errors.Join(err, kept.Close()) }() // when no more requests come
	}
	l, lis, err := o.listen()
	if err != nil {
		return err
	}
	addr, grpcAddr := addrOf(l), addrOf(lis)
	limits := o.Limits
	limits.Models, limits.Metrics, limits.Logger, limits.Log = models, metrics, o.Logger, kept
	server := serve.NewServer(limits)
	if server.Pinned() {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1 + runtime.GOMAXPROCS(0)))
	}
	run, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	failed := make(chan error, 2)
	var calls *grpc.Server
	if lis != nil {
		with := serve.GRPCOptions{Reload: o.Reload}
		if conf != nil {
			with.Credentials = credentials.NewTLS(conf)
		}
		calls = server.GRPC(with)
		wg.Go(func() { failed <- calls.Serve(wire.Bound(lis)) })
	}
	var web *http.Server
	if l != nil {
		l = wire.Bound(l)
		if conf != nil { // outside of what is bound: HTTP/2 is spoken where the server sees the connection's encryption
			l = tls.NewListener(l, conf)
		}
		web = server.HTTP(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		wg.Go(func() { failed <- web.Serve(l) })
	}
	wg.Go(func() { models.Watch(run, o.Poll) })
	wg.Go(func() { models.Verify(run, o.Poll) })
	wg.Go(func() { file.watch(run, models, o.Poll) })
	for _, m := range mirrors {
		wg.Go(func() { m.run(run, o.Poll) })
	}
	for _, j := range jobs {
		wg.Go(func() { j.run(run, cmp.Or(addr, grpcAddr)) })
	}
	defer wg.Wait()
	defer stop()
	if o.Ready != nil {
		o.Ready(addr, grpcAddr)
	}
	select {
	case err = <-failed:
		err = fault.Mark(fmt.Errorf("job: serving %s %s: %w", addr, grpcAddr, err), pipeline.ErrUnavailable, "")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-o.Drain:
	}
	server.Drain()
	if shut := end(ctx, web, calls); shut != nil {
		err = errors.Join(err, shut)
	}
	return err
}

// metrics makes those that are served, the caller's among them.
func (o *ServeModelsOptions) metrics() (*prometheus.Registry, *serve.Metrics, error) {
	reg := prometheus.NewRegistry()
	metrics, err := serve.NewMetrics(reg)
	err = errors.Join(err, reg.Register(collectors.NewGoCollector()), reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err == nil && o.Register != nil {
		err = o.Register(reg)
	}
	return reg, metrics, err
}

// watchSecrets watches the certificates and tokens of the server, of what it reads rows from, and of the shards of its jobs.
func (o *ServeModelsOptions) watchSecrets(reg prometheus.Registerer, jobs []*servedJob) (*secure.Watch, error) {
	files, tokens := []*secure.TLS{o.TLS, o.Rows.TLS}, tokenFiles(o.TokenFile, o.Pushes.TokenFile, o.Rows.TokenFile)
	for _, j := range jobs {
		files = append(files, j.first.cfg.PS.TLS) // its source is not read
		tokens = append(tokens, tokensOf(&j.first.cfg.PS)...)
	}
	return watchSecrets(o.Logger, reg, files, tokens)
}

// listen opens the addresses of the server. A listener is nil where there is no address.
func (o *ServeModelsOptions) listen() (web, calls net.Listener, err error) {
	for _, a := range []struct {
		flag, addr string
		to         *net.Listener
	}{{"--http", o.HTTP, &web}, {"--grpc", o.GRPC, &calls}} {
		if a.addr == "" {
			continue
		}
		l, err := wire.Listen(a.addr)
		if err != nil {
			err = fault.Mark(fmt.Errorf("job: %s: %w", a.flag, err), pipeline.ErrUnavailable, otherAddress(a.flag))
			if web != nil {
				err = errors.Join(err, web.Close())
			}
			return nil, nil, err
		}
		*a.to = l
	}
	return web, calls, nil
}

// addrOf is where a listener listens; "" for nil.
func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// end answers the requests that were begun, for as long as drainFor, and ends the servers. Either may be nil.
func end(ctx context.Context, web *http.Server, calls *grpc.Server) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	if calls != nil {
		defer context.AfterFunc(last, calls.Stop)()
		var wg sync.WaitGroup
		wg.Go(calls.GracefulStop)
		defer wg.Wait()
	}
	if web == nil {
		return nil
	}
	if err := web.Shutdown(last); err != nil {
		return errors.Join(err, web.Close())
	}
	return nil
}

// models are the exports by name, and those of stores.
func (o *ServeModelsOptions) models() (out []serve.ModelConfig, mirrors []*mirrored, err error) {
	for _, text := range o.Exports {
		name, dir, named := strings.Cut(text, "=")
		if !named || fsx.IsURL(name) {
			dir = text
			path := dir
			if !fsx.IsURL(dir) {
				if path, err = filepath.Abs(dir); err != nil {
					return nil, nil, fmt.Errorf("job: %w", err)
				}
			}
			if name = filepath.Base(path); isNumber(name) {
				name = filepath.Base(filepath.Dir(path))
			}
		}
		if err := checkName(name, text); err != nil {
			return nil, nil, err
		}
		if fsx.IsURL(dir) {
			m, err := openMirror(dir, o.Policy, len(o.Rows.Addrs) > 0, o.Shard, o.Cache, o.Logger)
			if err != nil {
				return nil, nil, err
			}
			mirrors, dir = append(mirrors, m), m.dir
		}
		out = append(out, serve.ModelConfig{Name: name, Dir: dir, Policy: o.Policy})
	}
	if len(out)+len(o.Jobs) == 0 && o.ConfigFile == "" && !o.Reload {
		return nil, nil, fault.Config("job: there is nothing to serve: name exports, as DIR or NAME=DIR, or jobs, or a file with models (--model-config), or let callers name them later (--allow-reload)")
	}
	return out, mirrors, nil
}

// checkName refuses a name of a model that requests cannot have; text is where it comes from.
func checkName(name, text string) error {
	if name == "" || strings.ContainsAny(name, "/:") {
		return fault.Config("job: %q does not name a model: write NAME=DIR, with a name that has neither / nor :", text)
	}
	return nil
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 63)
	return err == nil
}

// guard sets who may ask, and refuses an address that strangers can reach where nothing asks them who they are.
func (o *ServeModelsOptions) guard() (conf *tls.Config, err error) {
	var all []string
	for _, a := range []struct{ flag, addr string }{{"http", o.HTTP}, {"grpc", o.GRPC}} {
		if a.addr == "" {
			continue
		}
		if err := wire.CheckAddress(a.addr); err != nil {
			return nil, fault.Config("job: --%s: %w", a.flag, err)
		}
		all = append(all, a.addr)
	}
	if len(all) == 0 {
		return nil, fault.Config("job: --http and --grpc are both empty, so no client could ask; name an address for one of them")
	}
	if o.Reload && o.GRPC == "" {
		return nil, fault.Config("job: --allow-reload needs --grpc, over which callers say what is served")
	}
	if o.TLS != nil {
		if conf, err = o.TLS.Server(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}); err != nil {
			return nil, fault.Config("job: %w", err)
		}
	}
	knows := o.TLS != nil && o.TLS.CA != ""
	var rules, pushers []secure.Rule
	for _, of := range []struct {
		flag, file string
		right      secure.Right
		to         *[]secure.Rule
	}{{"token-file", o.TokenFile, secure.Read, &rules}, {"push-token-file", o.Pushes.TokenFile, secure.Train, &pushers}} {
		if of.file == "" {
			continue
		}
		token, err := tokenIn(of.file)
		if err != nil {
			return nil, fault.Config("job: --%s: %w", of.flag, err)
		}
		*of.to = append(*of.to, secure.Rule{Right: of.right, Token: token})
	}
	if len(pushers) > 0 {
		o.Limits.Pushers = secure.NewGuard(pushers)
	}
	if len(rules) > 0 {
		o.Limits.Guard = secure.NewGuard(append(rules, pushers...))
		knows = true
	}
	open := slices.IndexFunc(all, func(addr string) bool { return !wire.IsLocal(addr) })
	if guarded := conf != nil && knows; !guarded && !o.Insecure && open >= 0 {
		return nil, fault.Config("job: others than this machine can reach %s, and nothing keeps strangers from asking: give --tls-cert and --tls-key with --token-file (or with --tls-ca, for certificates on both sides), "+
			"or say --insecure on a network that you trust", all[open])
	}
	return conf, nil
}

// checkPushes refuses pushes that cannot be, or are not safe.
func (o *ServeModelsOptions) checkPushes() error {
	p := &o.Pushes
	switch {
	case !p.Accept && p.TokenFile != "":
		return fault.Config("job: --push-token-file is for --accept-pushes")
	case !p.Accept:
		return nil
	case p.MaxBytes < 0:
		return fault.Config("job: --pushed-bytes is %d, must be above 0", p.MaxBytes)
	case o.GRPC == "":
		return fault.Config("job: rows are pushed over gRPC: --accept-pushes needs --grpc")
	case len(o.Rows.Addrs) > 0:
		return fault.Config("job: this server has no rows (--rows): push them to its row shards, and start each of these with --accept-pushes")
	case len(o.Exports) == 0 && o.ConfigFile == "":
		return fault.Config("job: rows are pushed to exports, and there is none to serve: a job that is being trained is followed without --accept-pushes")
	case p.TokenFile == "" && o.TokenFile != "":
		return fault.Config("job: who may ask would be allowed to change what is answered: --accept-pushes with --token-file needs --push-token-file, with another token")
	case p.TokenFile == "" && !o.Insecure && !wire.IsLocal(o.GRPC):
		return fault.Config("job: others than this machine can reach %s, and nothing keeps them from changing what is answered: --accept-pushes needs --push-token-file there, or say --insecure on a network that you trust", o.GRPC)
	}
	return nil
}

// params makes of exports what takes rows; nil: nobody pushes.
func (p *Pushes) params() func(*native.Export) serve.Pushable {
	if !p.Accept {
		return nil
	}
	memory := table.NewMemory(table.MemoryOptions{Limit: cmp.Or(p.MaxBytes, DefaultPushedBytes), Of: "--pushed-bytes"})
	return func(e *native.Export) serve.Pushable { return pushable{replica.NewPushed(e, memory)} }
}

// pushable is an export as a server reads it and gives it rows.
type pushable struct{ *replica.Pushed }

// Reader implements [serve.Params].
func (p pushable) Reader() serve.Reader { return p.Pushed.Reader() }

// Inherit implements [serve.Pushable].
func (p pushable) Inherit(from serve.Pushable) error { return p.Pushed.Inherit(from.(pushable).Pushed) }

// tokenOf is the token of a file, which may change.
func tokenOf(file string) secure.Token {
	return func() (string, error) {
		b, err := os.ReadFile(file)
		return strings.TrimSpace(string(b)), err
	}
}

// tokenIn is tokenOf for a file that must have one.
func tokenIn(file string) (secure.Token, error) {
	token := tokenOf(file)
	got, err := token.Ask()
	if err == nil && got == "" {
		err = fmt.Errorf("%s is empty", file)
	}
	return token, err
}

// checkShards refuses row shards that cannot be.
func (o *ServeModelsOptions) checkShards() error {
	addrs := o.Rows.Addrs
	for _, of := range addrs {
		for a := range strings.SplitSeq(of, replicaMark) {
			if err := wire.CheckAddress(a); err != nil {
				return fault.Config("job: --rows: %w", err)
			}
		}
	}
	switch p := o.Shard; {
	case p == nil && len(addrs) == 0:
		return nil
	case len(o.Jobs) > 0:
		return fault.Config("job: a job that is being trained has all of its weights where it is served: --shard and --rows are for exports; serve the job in a process of its own")
	case p == nil:
		return nil
	case len(addrs) > 0:
		return fault.Config("job: a server has the rows of a shard (--shard), or reads them from shards (--rows), not both")
	case p.Of < 1 || p.Index < 0 || p.Index >= p.Of:
		return fault.Config("job: --shard is %s: such as 0/2 and 1/2, the first and the second of two", p)
	case o.GRPC == "":
		return fault.Config("job: a row shard is asked over gRPC: --shard needs --grpc")
	case o.RequestLog.Dir != "":
		return fault.Config("job: a row shard answers no requests for predictions, of which --request-log could keep some")
	}
	return nil
}

// dial makes a client of the row shards; nil: there are none. hangUp ends its connections.
func (r *RowShards) dial(metrics *serve.Metrics, log *slog.Logger) (_ *rows.Client, hangUp func() error, err error) {
	var conns []*wire.Client
	hangUp = func() error {
		var errs []error
		for _, c := range conns {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	if len(r.Addrs) == 0 {
		return nil, hangUp, nil
	}
	conf := wire.ClientConfig{TLS: r.TLS}
	if r.TokenFile != "" {
		if conf.Token, err = tokenIn(r.TokenFile); err != nil {
			return nil, nil, fault.Config("job: --rows-token-file: %w", err)
		}
	}
	o := rows.Options{CacheBytes: r.CacheBytes, Observer: metrics, Logger: log}
	for _, of := range r.Addrs {
		var shard rows.Shard
		for a := range strings.SplitSeq(of, replicaMark) {
			c, err := wire.NewClient(a, conf)
			if err != nil {
				return nil, nil, errors.Join(fault.Config("job: --rows: %w", err), hangUp())
			}
			conns = append(conns, c)
			shard = append(shard, rows.Replica{Addr: a, Conn: c})
		}
		o.Shards = append(o.Shards, shard)
	}
	return rows.NewClient(o), hangUp, nil
}

// ServingRecipe reads the recipes that snapshots and exports have of how features are made of records, for package serving. set is what jobs may name; nil: what is monolith's.
func ServingRecipe(set component.Set) serve.Recipe {
	set = components.Or(set)
	return func(m *export.Model) (parse.Options, error) { return wiring.RecipeOptions(m.Recipe, set) }
}
