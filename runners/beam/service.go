package beam

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/extworker"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/runnerlib"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
)

// Environments are where the executors of a submitted job run.
const (
	// Loopback: in the submitting process, which the runner's workers must reach at localhost.
	Loopback = "loopback"
	// Process: in processes that the runner's workers start, by the command that [Service].EnvironmentConfig names.
	Process = "process"
	// External: in the worker pool ([Pool]) at EnvironmentConfig, one beside each of the runner's workers.
	External = "external"
	// Docker: in containers of the image EnvironmentConfig.
	Docker = "docker"
)

// Service is a job service of Beam's portability API that a plan is submitted to: Flink's job server, say. The connection
// is neither encrypted nor authenticated: Beam has no such thing.
type Service struct {
	// Endpoint is the address, host:port.
	Endpoint string
	// Environment is where executors run: [Loopback], [Process], [External] or [Docker]. Default Loopback.
	Environment string
	// EnvironmentConfig is the command of Process, the address of the pool of External, the image of Docker. The command and
	// the image's entry point are this program, which knows by its arguments that it is a worker: nothing else is installed
	// where workers run, and nothing is staged.
	EnvironmentConfig string
	// JobName names the job at the runner. Default: the plan's name.
	JobName string
	// Parallelism is how many elements are processed at once. Default: as many as there are.
	Parallelism int
	// CheckpointEvery is how often the runner stores its account of an unbounded plan. What was trained is stored by the
	// parameter server; the account only says where a bundle resumes. 0: never, so that a job that fails begins again, from
	// the positions of the parameter server.
	CheckpointEvery time.Duration
	// Savepoint is the savepoint or retained checkpoint that the runner restores first; "" none.
	Savepoint string
	// BundleTime is how long a bundle of an unbounded plan stays open at most. Default 200 ms: by Flink's own default of 10 s
	// nothing is read for as long.
	BundleTime time.Duration
	// FlinkREST is the address of Flink's own interface, host:port. Flink's job server does not pass on that a job is
	// cancelled; where it is known the job is cancelled there.
	FlinkREST string
	// Options are further options of the runner, by their names without "beam:option:" and ":v1".
	Options map[string]any
	// Submitted, if not nil, is called once with the job's id at the runner.
	Submitted func(id string)
}

// faults are what is wrong with a service's settings.
func (s *Service) faults() (faults []string) {
	if _, _, err := net.SplitHostPort(s.Endpoint); err != nil {
		faults = append(faults, fmt.Sprintf("the job service's endpoint %q is not host:port", s.Endpoint))
	}
	switch s.Environment {
	case "", Loopback:
	case Process, External, Docker:
		if s.EnvironmentConfig == "" {
			faults = append(faults, fmt.Sprintf("environment %s has no environment config: the command, the pool's address or the image", s.Environment))
		}
	default:
		faults = append(faults, fmt.Sprintf("no environment %q; there are %q", s.Environment, []string{Docker, External, Loopback, Process}))
	}
	if s.Parallelism < 0 || s.CheckpointEvery < 0 || s.BundleTime < 0 {
		faults = append(faults, fmt.Sprintf("parallelism %d, checkpoints every %v, bundle time %v: none may be below 0", s.Parallelism, s.CheckpointEvery, s.BundleTime))
	}
	return faults
}

// here reports whether executors run in the submitting process.
func (s *Service) here() bool { return s.Environment == "" || s.Environment == Loopback }

// jobClient adds options of the runner to a submitted job: Beam's Go SDK forwards only five.
type jobClient struct {
	jobpb.JobServiceClient
	options map[string]any
}

// Prepare implements [jobpb.JobServiceClient].
func (c jobClient) Prepare(ctx context.Context, r *jobpb.PrepareJobRequest, o ...grpc.CallOption) (*jobpb.PrepareJobResponse, error) {
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		v, err := structpb.NewValue(c.options[name])
		if err != nil {
			return nil, fmt.Errorf("option %s: %w: %w", name, err, pipeline.ErrConfig)
		}
		r.PipelineOptions.Fields[optionName(name)] = v
	}
	return c.JobServiceClient.Prepare(ctx, r, o...)
}

// optionName is what an option is called in a submitted job.
func optionName(name string) string { return "beam:option:" + name + ":v1" }

// options are those of the runner, for a plan that ends or one that does not.
func (s *Service) options(bounded bool) map[string]any {
	o := map[string]any{"streaming": !bounded}
	if !bounded {
		o["max_bundle_time_mills"] = float64(cmp.Or(s.BundleTime, 200*time.Millisecond).Milliseconds())
		if s.CheckpointEvery > 0 {
			// The source of the elements stays although it gives them once: there is no checkpoint of a job whose source has ended.
			// What a bundle gives while a checkpoint is taken would be kept until the next bundle, and there is none behind the elements
			// of a job, which come once: it would never begin.
			o["finish_bundle_before_checkpointing"] = true
			o["checkpointing_interval"] = float64(s.CheckpointEvery.Milliseconds())
		}
	}
	if s.Savepoint != "" {
		o["savepoint_path"] = s.Savepoint
	}
	maps.Copy(o, s.Options)
	return o
}

// where is the environment of the executors that are not in this process; for those that are, one without an address.
func (s *Service) where() (urn, config string, err error) {
	switch {
	case s.here():
		return "beam:env:external:v1", "", nil
	case s.Environment == Process:
		b, err := json.Marshal(map[string]string{"command": s.EnvironmentConfig})
		return "beam:env:process:v1", string(b), err
	}
	return "beam:env:" + s.Environment + ":v1", s.EnvironmentConfig, nil
}

// understands checks that the service knows the options that it is given: what it does not know it ignores, and a stream would stall at its first
// checkpoint. A service that describes no options is believed. Errors: [pipeline.ErrConfig], [pipeline.ErrUnavailable].
func (s *Service) understands(ctx context.Context, client jobClient) error {
	described, err := client.DescribePipelineOptions(ctx, &jobpb.DescribePipelineOptionsRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return s.unreachable(err)
	}
	var known []string
	for _, o := range described.GetOptions() {
		known = append(known, o.GetName())
	}
	if len(known) == 0 {
		return nil
	}
	flink := slices.Contains(known, "flink_master")
	for _, name := range slices.Sorted(maps.Keys(client.options)) {
		_, asked := s.Options[name]
		switch {
		case slices.Contains(known, name):
		case asked && nearest.Name(name, known) != "":
			return fmt.Errorf("the job service at %s has no option %q; did you mean %q? %w", s.Endpoint, name, nearest.Name(name, known), pipeline.ErrConfig)
		case asked:
			return fmt.Errorf("the job service at %s has no option %q: %w", s.Endpoint, name, pipeline.ErrConfig)
		case flink: // the options of an unbounded plan are Flink's own
			return fmt.Errorf("the job service at %s does not know Flink's option %q, without which this plan does not run right: it is of another release of Beam; that of 2.70 has it: %w", s.Endpoint, name, pipeline.ErrConfig)
		}
	}
	return nil
}

// environment is how workers come into being; done ends what was begun for them.
func (s *Service) environment(ctx context.Context) (env *pipepb.Environment, done func() error, err error) {
	done = func() error { return nil }
	urn, config, err := s.where()
	if err != nil {
		return nil, nil, err
	}
	if s.here() {
		pool, err := extworker.StartLoopback(context.WithoutCancel(ctx), 0)
		if err != nil {
			return nil, nil, err
		}
		config = pool.EnvironmentConfig(ctx)
		done = func() error { return pool.Stop(context.WithoutCancel(ctx)) }
	}
	if env, err = graphx.CreateEnvironment(ctx, urn, func(context.Context) string { return config }); err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return env, done, nil
}

// stage sends a job's files, which is an empty one: workers have the program, but Beam wants one.
func (s *Service) stage(ctx context.Context, client jobpb.JobServiceClient, job *pipepb.Pipeline, o *runnerlib.JobOptions) (prepared, retrieval string, err error) {
	f, err := os.CreateTemp("", "monolith-worker-*")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := f.Close(); err != nil {
		return "", "", err
	}
	if err := runnerlib.UpdateGoEnvironmentWorker(f.Name(), job); err != nil {
		return "", "", err
	}
	prepared, endpoint, token, err := runnerlib.Prepare(ctx, client, job, o)
	if err != nil {
		return "", "", err
	}
	if retrieval, err = runnerlib.Stage(ctx, prepared, endpoint, f.Name(), token); err != nil {
		return "", "", learnt(err, "the job service at "+s.Endpoint, "its artifact service", endpoint, " (--job-host and --artifact-port of Beam's job server)")
	}
	return prepared, retrieval, nil
}

// learnt says which service gave an address to which Beam's SDK could not connect. Other errors stay.
func learnt(err error, from, what, addr, advice string) error {
	if !strings.Contains(err.Error(), "failed to dial server at "+addr) || errors.Is(err, context.Canceled) {
		return err
	}
	cause := err
	for next := err; next != nil; next = errors.Unwrap(next) {
		cause = next
	}
	return fmt.Errorf("%s answered, and says that %s is at %s, where none answers from here%s: %s: %w", from, what, addr, advice, cause.Error(), pipeline.ErrUnavailable)
}

// run implements [destination]. A job with checkpoints stays when its executors have ended.
func (s *Service) run(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, elements int, wholeEnd func(context.Context) error, log *slog.Logger) (counted pipeline.RunStats, err error) {
	edges, _, err := p.Build()
	if err != nil {
		return counted, err
	}
	env, done, err := s.environment(ctx)
	if err != nil {
		return counted, err
	}
	defer func() { err = errors.Join(err, done()) }()
	job, err := graphx.Marshal(edges, &graphx.Options{Environment: env})
	if err != nil {
		return counted, err
	}
	conn, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return counted, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := jobClient{jobpb.NewJobServiceClient(conn), s.options(plan.Bounded())}
	if err := s.understands(ctx, client); err != nil {
		return counted, err
	}
	name := cmp.Or(s.JobName, plan.Name)
	prepared, retrieval, err := s.stage(ctx, client, job, &runnerlib.JobOptions{Name: name, Parallelism: cmp.Or(s.Parallelism, elements)})
	if err != nil {
		return counted, s.unreachable(err)
	}
	id, err := runnerlib.Submit(ctx, client, prepared, retrieval)
	if err != nil {
		return counted, s.unreachable(err)
	}
	log.Info("job submitted", "service", s.Endpoint, "id", id)
	if s.Submitted != nil {
		s.Submitted(id)
	}
	wait := time.Duration(0)
	if s.CheckpointEvery == 0 {
		wait = grace // it ends by itself
	}
	return attend(ctx, &serviceJob{s, client, id, log}, wait, wholeEnd, log)
}

// serviceJob is a job at a job service.
type serviceJob struct {
	*Service
	client jobpb.JobServiceClient
	id     string
	log    *slog.Logger
}

func (j *serviceJob) name() string { return j.id }

func (j *serviceJob) follow(ctx context.Context) error {
	return j.Service.follow(ctx, j.client, j.id, j.log)
}

func (j *serviceJob) cancel(ctx context.Context) { j.Service.cancel(ctx, j.client, j.id, j.log) }

func (j *serviceJob) counted(ctx context.Context) (counted pipeline.RunStats, err error) {
	found, err := j.client.GetJobMetrics(ctx, &jobpb.GetJobMetricsRequest{JobId: j.id})
	if err != nil {
		return counted, err
	}
	for _, m := range found.GetMetrics().GetCommitted() {
		if m.GetLabels()["NAMESPACE"] != "monolith" {
			continue
		}
		n, _ := binary.Uvarint(m.GetPayload())
		count(&counted, m.GetLabels()["NAME"], int64(n))
	}
	return counted, nil
}

// unreachable says what to do about a job service that does not answer.
func (s *Service) unreachable(err error) error {
	if errors.Is(err, pipeline.ErrUnavailable) { // it has answered: see learnt
		return err
	}
	if text := err.Error(); strings.Contains(text, "error reading server preface: ") && strings.Contains(text, "http2: ") {
		return fmt.Errorf("what answers at %s speaks HTTP, as Flink's web port 8081 does, and is no job service: Beam's job server has port 8099 (beam.endpoint): %w: %w", s.Endpoint, err, pipeline.ErrConfig)
	}
	if c := status.Code(errors.Unwrap(err)); c == codes.Unavailable || strings.Contains(err.Error(), "code = Unavailable") {
		return fmt.Errorf("no job service answers at %s: is the job server running? %w: %w", s.Endpoint, err, pipeline.ErrUnavailable)
	}
	return fmt.Errorf("job service %s: %w", s.Endpoint, err)
}

// follow returns when a job has ended: nil when it is done, otherwise with what was said last. Errors: [ErrCancelled].
func (s *Service) follow(ctx context.Context, client jobpb.JobServiceClient, id string, log *slog.Logger) error {
	stream, err := client.GetMessageStream(ctx, &jobpb.JobMessagesRequest{JobId: id})
	if err != nil {
		return s.unreachable(err)
	}
	state, last := jobpb.JobState_UNSPECIFIED, ""
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s.unreachable(fmt.Errorf("job %s: %w", id, err))
		}
		if r := m.GetMessageResponse(); r != nil {
			log.Debug("job message", "id", id, "text", r.GetMessageText())
			if r.GetImportance() >= jobpb.JobMessage_JOB_MESSAGE_ERROR {
				last = r.GetMessageText()
			}
		}
		if r := m.GetStateResponse(); r != nil && r.GetState() != state {
			state = r.GetState()
			log.Info("job state", "id", id, "state", strings.ToLower(state.String()))
		}
	}
	switch state {
	case jobpb.JobState_DONE:
		return nil
	case jobpb.JobState_CANCELLED:
		return fmt.Errorf("job %s: %w", id, ErrCancelled)
	}
	if strings.Contains(last, "JobCancellationException") { // Flink calls it failed
		return fmt.Errorf("job %s: %w", id, ErrCancelled)
	}
	return fmt.Errorf("job %s ended as %s: %s", id, strings.ToLower(state.String()), ofWorkers(last))
}

// ofWorkers takes what a worker has said out of what a runner makes of it: a Java exception around Beam's notes around it.
func ofWorkers(text string) string {
	const ours = "caused by:\n"
	if i := strings.LastIndex(text, ours); i >= 0 {
		text = text[i+len(ours):]
	}
	if i := strings.Index(text, "\n\tat "); i >= 0 { // a Java stack
		text = text[:i]
	}
	return strings.TrimSpace(text)
}

// cancel ends a job at its runner, unless it has ended: ctx is done then.
func (s *Service) cancel(ctx context.Context, client jobpb.JobServiceClient, id string, log *slog.Logger) {
	ctx, stop := context.WithTimeout(ctx, grace)
	defer stop()
	for found := s.FlinkREST == ""; !found; {
		var err error
		if found, err = cancelAtFlink(ctx, s.FlinkREST, id); err != nil && ctx.Err() == nil {
			log.Warn("job not cancelled at flink", "id", id, "flink", s.FlinkREST, "err", err)
			break
		}
		select {
		case <-time.After(settle / 10):
		case <-ctx.Done():
			found = true
		}
	}
	if _, err := client.Cancel(ctx, &jobpb.CancelJobRequest{JobId: id}); err != nil && ctx.Err() == nil {
		log.Warn("job not cancelled", "id", id, "err", err)
	}
}
