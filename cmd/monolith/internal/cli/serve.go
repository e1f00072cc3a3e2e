package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job"
)

func (a *App) serveCommand(out *outcome) *cobra.Command {
	var (
		o        job.ServeModelsOptions
		tls      secure.TLS
		maxBytes int64
		set      []string
		shard    string
		rowsTLS  secure.TLS
	)
	cmd := &cobra.Command{
		Use:   "serve [[NAME=]DIR|URL|JOB.yaml...]",
		Short: "Answer requests for predictions with exports and running jobs",
		Long: `Answer requests for predictions with native exports (monolith export --format native), over HTTP and gRPC as TensorFlow Serving does. DIR is an export, or the folder of exports that
--dir of monolith export names: its newest version is served, and each newer one as soon as it is there, without a request that fails. A version that cannot be opened is refused,
and the last good one stays. NAME is what requests call the model; without it, it is the folder's name, or that of the job.

URL is such a folder in a store: s3://, gs://, hdfs:// or file:///. It is looked into as often, and what is to be served is copied to this machine (--cache). While the store does not answer,
what was copied is served.

JOB.yaml is a job that is being trained. Its newest snapshot is served, and then what its shards at ps.addresses have: all weights are kept in memory here and follow
the shards, moments behind. A shard that does not answer is asked again, and what there is is served meanwhile; freshness_seconds, in the model's status and the
metrics, says how old it is. Where the shards are in the process that trains, each snapshot is served when it is there.

Where the rows of the exports are too many for one machine, other processes hold them: each of N row shards is started with the same exports and --shard 0/N, 1/N and so on, and gives the
rows of its part of the ids to servers that are started with --rows and the addresses of all of them. Those have all else of the model in memory, and the rows that are asked for most (--row-cache). A
shard may have several processes, replicas whose addresses are joined by |: where one does not answer another is asked.

With --accept-pushes the rows of exports change while they are served: monolith ps push, or the parameter servers of bytedance/monolith, say what they are (signatures hashtable_assign and
raw_assign of PredictionService). Rows that are not those of the export take memory (--pushed-bytes).

  POST /v1/models/NAME:predict, :classify, :regress      also /v1/models/NAME/versions/N:predict
  GET  /v1/models/NAME and /v1/models/NAME/metadata      versions; inputs and outputs
  GET  /healthz and /metrics

Over gRPC: tensorflow.serving.PredictionService and ModelService, grpc.health.v1.Health and reflection.

It listens on this machine. An address that others can reach is refused without --tls-cert, --tls-key and --token-file (or --tls-ca), unless --insecure is given.
The first SIGINT or SIGTERM answers the requests that are there, and ends with exit code 0.`,
		Example: `  monolith serve models/click
  monolith serve click=models/click rank=/srv/rank --latest 2
  monolith serve --model-config models.config
  monolith serve live=click.yaml
  monolith serve s3://models/served/click --cache /srv/cache
  monolith serve models/click --accept-pushes
  monolith serve models/click --shard 0/2 --grpc 127.0.0.1:8600 \
    --http 127.0.0.1:8601
  monolith serve models/click --shard 1/2 --grpc 127.0.0.1:8610 \
    --http 127.0.0.1:8611
  monolith serve models/click --rows 127.0.0.1:8600,127.0.0.1:8610
  monolith serve models/click --rows 'a1:8600|a2:8600,b1:8600|b2:8600' \
    --rows-tls-ca ca.pem --rows-token-file token
  monolith serve models/click --http 0.0.0.0:8501 --grpc 0.0.0.0:8500 \
    --tls-cert c.pem --tls-key k.pem --token-file token
  curl -d '{"instances": [{"user": 12, "item": 7}]}' \
    localhost:8501/v1/models/click:predict`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && o.ConfigFile == "" && !o.Reload {
				return &usageError{message: "nothing to serve: name folders of exports, exports or job files, or --model-config FILE, or let callers name models with --allow-reload"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "serve"
			if a.Ops.ServeModels == nil {
				return errMissing
			}
			switch l := &o.Limits; {
			case o.Policy.Latest < 1:
				return &usageError{message: fmt.Sprintf("--latest is %d, must be at least 1", o.Policy.Latest)}
			case o.Poll <= 0, o.Every <= 0:
				return &usageError{message: fmt.Sprintf("--poll is %s and --every %s, must be above 0", o.Poll, o.Every)}
			case l.BatchExamples < 1, l.BatchDelay < 0:
				return &usageError{message: "--batch-examples must be at least 1, --batch-delay at least 0"}
			case o.Rows.CacheBytes < 0:
				return &usageError{message: fmt.Sprintf("--row-cache is %d, must be at least 0", o.Rows.CacheBytes)}
			case len(o.Rows.Addrs) == 0 && (cmd.Flags().Changed("row-cache") || o.Rows.TokenFile != "" || rowsTLS != secure.TLS{}):
				return &usageError{message: "--row-cache, --rows-token-file and --rows-tls-* are for --rows ADDRESS,..."}
			case o.Pushes.MaxBytes < 1:
				return &usageError{message: fmt.Sprintf("--pushed-bytes is %d, must be at least 1", o.Pushes.MaxBytes)}
			case !o.Pushes.Accept && (o.Pushes.TokenFile != "" || cmd.Flags().Changed("pushed-bytes")):
				return &usageError{message: "--push-token-file and --pushed-bytes are for --accept-pushes"}
			case o.Cache.MaxBytes < 1:
				return &usageError{message: fmt.Sprintf("--cache-bytes is %d, must be at least 1", o.Cache.MaxBytes)}
			case o.RequestLog.Dir == "" && cmd.Flags().Changed("log-rate"):
				return &usageError{message: "--log-rate is for --request-log DIR"}
			case l.Threads < 0, l.Waiting < 0, l.MaxCalls < 1, l.MaxExamples < 1, maxBytes < 1, l.Timeout <= 0:
				return &usageError{message: "--threads and --max-waiting must be at least 0, --max-calls, --max-examples, --max-bytes and --timeout above it"}
			}
			o.Limits.MaxBytes = maxBytes
			for _, arg := range args {
				name, path, named := strings.Cut(arg, "=")
				if !named {
					name, path = "", arg
				}
				if !isJobFile(path) || fsx.IsURL(path) {
					o.Exports = append(o.Exports, arg)
					continue
				}
				load := func() (*job.Config, error) { return a.read(path, job.LoadOptions{Set: set}) }
				if path == stdinJob { // which can be read once, and before the first signal means to drain
					cfg, err := load()
					if err != nil {
						return err
					}
					load = func() (*job.Config, error) { return cfg, nil }
				}
				o.Jobs = append(o.Jobs, job.ServedJob{Name: name, Load: load})
			}
			if tls != (secure.TLS{}) {
				o.TLS = &tls
			}
			if rowsTLS != (secure.TLS{}) {
				o.Rows.TLS = &rowsTLS
			}
			if shard != "" {
				var p native.Part
				if n, err := fmt.Sscanf(shard, "%d/%d", &p.Index, &p.Of); n != 2 || err != nil || p.String() != shard {
					return &usageError{message: fmt.Sprintf("--shard is %q: such as 0/2 and 1/2, the first and the second of two", shard)}
				}
				o.Shard = &p
			}
			opts, stop, err := a.run(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer stop()
			o.Logger, o.Drain, o.Register = opts.Logger, opts.Drain, a.registerBuild
			o.Ready = func(http, grpc string) {
				var at []string
				if http != "" {
					at = append(at, "at "+http)
				}
				if grpc != "" {
					at = append(at, "gRPC at "+grpc)
				}
				a.notice("serving " + strings.Join(at, ", "))
			}
			a.drainsBy("answering the requests that are there")
			return a.Ops.ServeModels(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.HTTP, "http", "127.0.0.1:8501", "`address` for HTTP, /healthz and /metrics; empty: none")
	flags.StringVar(&o.GRPC, "grpc", "127.0.0.1:8500", "`address` for gRPC; empty: none")
	flags.StringVar(&o.ConfigFile, "model-config", "", "`file` of more models, with policies and labels of versions, as TensorFlow Serving's --model_config_file; it is read again when it changes")
	flags.BoolVar(&o.Reload, "allow-reload", false, "let callers choose over gRPC which folders of this machine are served (HandleReloadConfigRequest)")
	flags.IntVar(&o.Policy.Latest, "latest", 1, "how `many` of the newest versions of a model are served")
	flags.BoolVar(&o.Policy.All, "all-versions", false, "serve all versions")
	flags.Int64SliceVar(&o.Policy.Specific, "version-number", nil, "serve the versions of these `numbers`")
	flags.DurationVar(&o.Every, "every", 250*time.Millisecond, "`how often` the shards of running jobs are asked what has changed")
	addSet(cmd, &set)
	flags.DurationVar(&o.Poll, "poll", 2*time.Second, "`how often` folders are looked into")
	addCache(cmd, &o.Cache)
	flags.StringVar(&shard, "shard", "", "which `I/N` of the rows of the exports are here, for servers with --rows: 0/2 is the first half")
	flags.StringSliceVar(&o.Rows.Addrs, "rows", nil, "`addresses` of gRPC of all row shards, in the order of their numbers, where rows are read; those of the replicas of a shard are joined by |")
	flags.Int64Var(&o.Rows.CacheBytes, "row-cache", 256<<20, "how many `bytes` rows of shards have that are kept; 0: none are")
	flags.StringVar(&rowsTLS.CA, "rows-tls-ca", "", "PEM `file` of who certifies row shards")
	flags.StringVar(&rowsTLS.Cert, "rows-tls-cert", "", "PEM `file` of the certificate that row shards are shown")
	flags.StringVar(&rowsTLS.Key, "rows-tls-key", "", "PEM `file` of its key")
	flags.StringVar(&rowsTLS.ServerName, "rows-tls-server-name", "", "`name` that the certificates of row shards have (default the host of the address)")
	flags.StringVar(&o.Rows.TokenFile, "rows-token-file", "", "`file` of the token that row shards want")
	flags.BoolVar(&o.Pushes.Accept, "accept-pushes", false, "let callers say over gRPC what rows of the exports are (monolith ps push)")
	flags.StringVar(&o.Pushes.TokenFile, "push-token-file", "", "`file` of the token that callers must bear who push rows; they may ask too")
	flags.Int64Var(&o.Pushes.MaxBytes, "pushed-bytes", job.DefaultPushedBytes, "how many `bytes` rows may take that were pushed and are not those of the exports")
	flags.IntVar(&o.Limits.Threads, "threads", 0, "how `many` requests are computed at a time (default one for each CPU, or four with --rows)")
	flags.BoolVar(&o.Limits.PinThreads, "pin-threads", true, "bind each thread that computes a request to a CPU meanwhile, on Linux with two CPUs; elsewhere they are not")
	flags.IntVar(&o.Limits.Waiting, "max-waiting", 0, "how `many` requests wait at most; others are refused (default 64 for each thread)")
	flags.IntVar(&o.Limits.MaxCalls, "max-calls", 1024, "how `many` calls there are at a time over all connections; others are refused before they are received")
	flags.IntVar(&o.Limits.MaxExamples, "max-examples", 1<<16, "how `many` examples a request has at most")
	flags.Int64Var(&maxBytes, "max-bytes", 64<<20, "how many `bytes` a request has at most")
	flags.IntVar(&o.Limits.BatchExamples, "batch-examples", 256, "how `many` examples of several requests are computed together at most; 1: none are")
	flags.DurationVar(&o.Limits.BatchDelay, "batch-delay", 0, "how `long` a request waits for others to be computed with; 0: only while all threads are busy")
	flags.StringVar(&o.RequestLog.Dir, "request-log", "", "`folder` of its own where some requests are kept with their answers, as PredictionLogs in TFRecord files")
	flags.Float64Var(&o.RequestLog.Rate, "log-rate", 0.01, "which `share` of the requests is kept")
	flags.Int64Var(&o.RequestLog.FileBytes, "log-file-bytes", 64<<20, "how many `bytes` a file of the request log has at most; it is complete after 10 minutes too")
	flags.Int64Var(&o.RequestLog.MaxBytes, "log-max-bytes", 1<<30, "how many `bytes` its files have together; the oldest are removed")
	flags.DurationVar(&o.Limits.Timeout, "timeout", 30*time.Second, "how `long` a request may take")
	flags.StringVar(&tls.Cert, "tls-cert", "", "PEM `file` of the server's certificate")
	flags.StringVar(&tls.Key, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&tls.CA, "tls-ca", "", "PEM `file` of who certifies clients, which then need a certificate")
	flags.StringVar(&o.TokenFile, "token-file", "", "`file` of the token that callers must bear")
	flags.BoolVar(&o.Insecure, "insecure", false, "listen beyond this machine though nothing keeps strangers away")
	return cmd
}
