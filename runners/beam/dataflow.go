package beam

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/dataflow/dataflowlib"
	df "google.golang.org/api/dataflow/v1b3"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/pipeline"
)

// dataflowPoll is how often the state of a job at Dataflow is asked for, and dataflowPatience how many questions in a row may go
// without an answer.
const (
	dataflowPoll     = 5 * time.Second
	dataflowPatience = 24
)

// Dataflow is where a plan is submitted to on Google Cloud Dataflow. Credentials are Google's application default credentials.
type Dataflow struct {
	// Project and Region are where the job runs.
	Project, Region string
	// Staging is the folder that the job is uploaded to, gs://BUCKET/PATH; Temp the one for the runner's own files, default
	// Staging/tmp.
	Staging, Temp string
	// Image is the container image that the executors run in. Its entry point is this program, as that of [Docker] is.
	Image string
	// JobName names the job: lower-case letters, digits and dashes, one running job of a name. Default: the plan's name.
	JobName string
	// The machines of the job; zero values are the runner's defaults. Threads are for each of them: as many elements are processed
	// at once.
	Workers, MaxWorkers, Threads int64
	MachineType, MinCPUPlatform  string
	DiskGB                       int64
	DiskType                     string
	// Autoscaling is NONE, THROUGHPUT_BASED or the runner's default.
	Autoscaling string
	// WorkerRegion or WorkerZone, when not that of Region.
	WorkerRegion, WorkerZone string
	Network, Subnetwork      string
	PrivateIPs               bool
	ServiceAccount, KMSKey   string
	FlexRS                   string
	Labels                   map[string]string
	// Experiments and ServiceOptions are Dataflow's own, beside those that every job of Beam's Go SDK has.
	Experiments, ServiceOptions []string
	// Submitted, if not nil, is called once with the job's id.
	Submitted func(id string)

	// What reaches the cloud; nil: Google's own clients.
	service func(ctx context.Context) (*df.Service, error)
	upload  func(ctx context.Context, url string, content []byte) error
	poll    time.Duration
}

// dataflowName is what Dataflow accepts as the name of a job.
var dataflowName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

func (d *Dataflow) faults() (faults []string) {
	for _, s := range []struct{ name, value string }{{"project", d.Project}, {"region", d.Region}, {"staging location", d.Staging}, {"image", d.Image}} {
		if s.value == "" {
			faults = append(faults, fmt.Sprintf("dataflow: no %s is given", s.name))
		}
	}
	for _, s := range []struct{ name, value string }{{"staging", d.Staging}, {"temp", d.Temp}} {
		if s.value != "" && !strings.HasPrefix(s.value, "gs://") {
			faults = append(faults, fmt.Sprintf("dataflow: the %s location %q is not gs://BUCKET/PATH", s.name, s.value))
		}
	}
	if d.JobName != "" && !dataflowName.MatchString(d.JobName) {
		faults = append(faults, fmt.Sprintf("dataflow: %q cannot be the name of a job: lower-case letters, digits and dashes", d.JobName))
	}
	if d.Workers < 0 || d.MaxWorkers < 0 || d.Threads < 0 || d.DiskGB < 0 || d.MaxWorkers > 0 && d.Workers > d.MaxWorkers {
		faults = append(faults, fmt.Sprintf("dataflow: %d workers of at most %d, %d threads, disks of %d GB: none may be below 0, nor more workers than the most", d.Workers, d.MaxWorkers, d.Threads, d.DiskGB))
	}
	if d.WorkerRegion != "" && d.WorkerZone != "" {
		faults = append(faults, fmt.Sprintf("dataflow: worker region %q and worker zone %q exclude each other", d.WorkerRegion, d.WorkerZone))
	}
	return faults
}

// here implements [destination].
func (*Dataflow) here() bool { return false }

// jobOptions are those of a plan.
func (d *Dataflow) jobOptions(plan *pipeline.Plan, workerHash string) *dataflowlib.JobOptions {
	// These are what Beam's own runner asks for in each job: its portable form on Dataflow.
	experiments := slices.Concat(d.Experiments, []string{"beam_fn_api", "use_runner_v2", "use_unified_worker", "use_portable_job_submission"})
	if !plan.Bounded() {
		experiments = append(experiments, "enable_streaming_engine", "enable_windmill_service")
	}
	if d.MinCPUPlatform != "" {
		experiments = append(experiments, "min_cpu_platform="+d.MinCPUPlatform)
	}
	return &dataflowlib.JobOptions{
		Name: cmp.Or(d.JobName, plan.Name), Streaming: !plan.Bounded(), Experiments: experiments, DataflowServiceOptions: d.ServiceOptions,
		Options: runtime.RawOptions{Options: map[string]string{}},
		Project: d.Project, Region: d.Region, TempLocation: cmp.Or(d.Temp, strings.TrimSuffix(d.Staging, "/")+"/tmp"),
		KmsKey: d.KMSKey, Network: d.Network, Subnetwork: d.Subnetwork, NoUsePublicIPs: d.PrivateIPs,
		NumWorkers: d.Workers, MaxNumWorkers: d.MaxWorkers, WorkerHarnessThreads: d.Threads, Algorithm: d.Autoscaling,
		DiskSizeGb: d.DiskGB, DiskType: d.DiskType, MachineType: d.MachineType, FlexRSGoal: d.FlexRS, Labels: d.Labels,
		ServiceAccountEmail: d.ServiceAccount, WorkerRegion: d.WorkerRegion, WorkerZone: d.WorkerZone, ContainerImage: d.Image, WorkerHash: workerHash,
	}
}

// dataflowJob is a job that is ready to be submitted.
type dataflowJob struct {
	pipeline *pipepb.Pipeline
	model    []byte // of the pipeline
	job      *df.Job
	// The places of the two files that are uploaded, and the second file: this program.
	modelURL, workerURL, worker string
}

// prepare translates a Beam graph to a job. It reaches nothing.
func (d *Dataflow) prepare(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan) (*dataflowJob, error) {
	edges, _, err := p.Build()
	if err != nil {
		return nil, err
	}
	env, err := graphx.CreateEnvironment(ctx, "beam:env:docker:v1", func(context.Context) string { return d.Image })
	if err != nil {
		return nil, err
	}
	j := &dataflowJob{}
	if j.pipeline, err = graphx.Marshal(edges, &graphx.Options{Environment: env}); err != nil {
		return nil, err
	}
	// Dataflow's machines want a file named worker, which Beam's own images start; ours have the program already.
	if j.worker, err = os.Executable(); err != nil {
		return nil, err
	}
	hash, err := hashOf(j.worker)
	if err != nil {
		return nil, err
	}
	folder := strings.TrimSuffix(d.Staging, "/") + "/" + strings.ToLower(rand.Text())
	j.workerURL, j.modelURL = folder+"/worker", folder+"/model"
	payload, err := proto.Marshal(&pipepb.ArtifactUrlPayload{Url: j.workerURL, Sha256: hash})
	if err != nil {
		return nil, err
	}
	if err := graphx.UpdateDefaultEnvWorkerType(graphx.URNArtifactURLType, payload, j.pipeline); err != nil {
		return nil, err
	}
	if j.model, err = proto.Marshal(j.pipeline); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(j.model)
	j.job, err = dataflowlib.Translate(ctx, j.pipeline, d.jobOptions(plan, hash), j.workerURL, j.modelURL, hex.EncodeToString(sum[:]))
	return j, err
}

// translate implements [destination].
func (d *Dataflow) translate(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, _ int) (*Translation, error) {
	j, err := d.prepare(ctx, p, plan)
	if err != nil {
		return nil, err
	}
	t, err := translation(j.pipeline, nil)
	if err != nil {
		return nil, err
	}
	t.Job, err = j.job.MarshalJSON()
	return t, err
}

// run implements [destination].
func (d *Dataflow) run(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, _ int, wholeEnd func(context.Context) error, log *slog.Logger) (counted pipeline.RunStats, err error) {
	j, err := d.prepare(ctx, p, plan)
	if err != nil {
		return counted, err
	}
	upload, service := d.upload, d.service
	if upload == nil {
		upload = func(ctx context.Context, url string, content []byte) error {
			return dataflowlib.StageModel(ctx, d.Project, url, content)
		}
	}
	if service == nil {
		service = func(ctx context.Context) (*df.Service, error) { return dataflowlib.NewClient(ctx, "") }
	}
	client, err := service(ctx)
	if err != nil {
		return counted, fmt.Errorf("dataflow: no credentials; `gcloud auth application-default login` makes them: %w: %w", err, pipeline.ErrUnavailable)
	}
	worker, err := os.ReadFile(j.worker)
	if err != nil {
		return counted, err
	}
	for _, file := range []struct {
		url     string
		content []byte
	}{{j.workerURL, worker}, {j.modelURL, j.model}} {
		if err := upload(ctx, file.url, file.content); err != nil {
			return counted, fmt.Errorf("dataflow: upload of %s: %w: %w", file.url, err, pipeline.ErrUnavailable)
		}
	}
	made, err := client.Projects.Locations.Jobs.Create(d.Project, d.Region, j.job).Context(ctx).Do()
	if err != nil {
		return counted, d.refused(err)
	}
	log.Info("job submitted", "service", "dataflow", "project", d.Project, "region", d.Region, "id", made.Id)
	if d.Submitted != nil {
		d.Submitted(made.Id)
	}
	return attend(ctx, &cloudJob{d, client, made.Id, log}, 0, wholeEnd, log)
}

// refused says what an error of Dataflow's interface means.
func (d *Dataflow) refused(err error) error {
	if e, ok := errors.AsType[*googleapi.Error](err); ok && e.Code/100 == 4 && e.Code != http.StatusTooManyRequests {
		return fmt.Errorf("dataflow: project %s, region %s: %w: %w", d.Project, d.Region, err, pipeline.ErrConfig)
	}
	return fmt.Errorf("dataflow: project %s, region %s: %w: %w", d.Project, d.Region, err, pipeline.ErrUnavailable)
}

// cloudJob is a job at Dataflow.
type cloudJob struct {
	*Dataflow
	client *df.Service
	id     string
	log    *slog.Logger
}

func (j *cloudJob) name() string { return j.id }

// follow implements [submitted].
func (j *cloudJob) follow(ctx context.Context) error {
	jobs, state := j.client.Projects.Locations.Jobs, ""
	for unanswered := 0; ; {
		now, err := jobs.Get(j.Project, j.Region, j.id).Context(ctx).Do()
		switch {
		case err != nil && unanswered == dataflowPatience:
			return j.refused(fmt.Errorf("job %s: %w", j.id, err))
		case err != nil:
			unanswered++
			j.log.Warn("the job's state is not known", "id", j.id, "err", err)
		default:
			unanswered = 0
			if now.CurrentState != state {
				state = now.CurrentState
				j.log.Info("job state", "id", j.id, "state", strings.ToLower(strings.TrimPrefix(state, "JOB_STATE_")))
			}
		}
		switch state {
		case "JOB_STATE_DONE":
			return nil
		case "JOB_STATE_CANCELLED", "JOB_STATE_DRAINED", "JOB_STATE_UPDATED":
			return fmt.Errorf("job %s: %w", j.id, ErrCancelled)
		case "JOB_STATE_FAILED":
			last := "nothing is given as the reason"
			found, err := jobs.Messages.List(j.Project, j.Region, j.id).MinimumImportance("JOB_MESSAGE_ERROR").Context(ctx).Do()
			if err == nil && len(found.JobMessages) > 0 {
				last = ofWorkers(found.JobMessages[len(found.JobMessages)-1].MessageText)
			}
			return fmt.Errorf("job %s ended as failed: %s", j.id, last)
		}
		select {
		case <-time.After(cmp.Or(j.poll, dataflowPoll)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cancel implements [submitted].
func (j *cloudJob) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, grace)
	defer stop()
	ask := &df.Job{RequestedState: "JOB_STATE_CANCELLED"}
	if _, err := j.client.Projects.Locations.Jobs.Update(j.Project, j.Region, j.id, ask).Context(ctx).Do(); err != nil && ctx.Err() == nil {
		j.log.Warn("job not cancelled", "id", j.id, "err", err)
	}
}

// counted implements [submitted].
func (j *cloudJob) counted(ctx context.Context) (counted pipeline.RunStats, err error) {
	found, err := j.client.Projects.Locations.Jobs.GetMetrics(j.Project, j.Region, j.id).Context(ctx).Do()
	if err != nil {
		return counted, err
	}
	for _, m := range found.Metrics {
		if m.Name == nil || m.Name.Context["namespace"] != "monolith" || m.Name.Context["tentative"] == "true" {
			continue
		}
		n, _ := m.Scalar.(float64)
		count(&counted, m.Name.Name, int64(n))
	}
	return counted, nil
}

func hashOf(path string) (_ string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// compactJSON makes one form of JSON of all that mean the same: protobuf's varies on purpose.
func compactJSON(b []byte) (json.RawMessage, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	return out.Bytes(), err
}
