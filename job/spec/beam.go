package spec

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// The runners of a job.
const (
	RunnerLocal    = "local"
	RunnerFlink    = "flink"
	RunnerPortable = "portable"
	RunnerDataflow = "dataflow"
)

// Where the executors of a submitted job are.
const (
	Loopback = "loopback"
	Process  = "process"
	External = "external"
	Docker   = "docker"
)

// Beam is where the runners flink, portable and dataflow submit the training graph to.
type Beam struct {
	// Endpoint is the address of the job service, host:port. Its connection is neither encrypted nor authenticated: Beam has
	// no such thing.
	Endpoint string `yaml:"endpoint" default:""`
	// Environment is where the runner's workers have the graph run: loopback, in the submitting process, which must be
	// reachable at localhost; process, in processes they start by the command in environment_config; external, in the worker pool
	// (`monolith worker-pool`) at that address, one beside each of them; or docker, in containers of that image. All but loopback
	// need ps.addresses, and files under one absolute path everywhere.
	Environment string `yaml:"environment" default:"loopback" enum:"loopback|process|external|docker"`
	// EnvironmentConfig is the command of process, the pool's host:port of external, the image of docker. The command is this
	// program, without arguments.
	EnvironmentConfig string `yaml:"environment_config" default:""`
	// Dataflow is what the runner dataflow needs in the place of endpoint and environment.
	Dataflow Dataflow `yaml:"dataflow"`
	// JobName is what the runner calls the job. Default: the job's name.
	JobName string `yaml:"job_name" default:""`
	// Parallelism is how many splits are read at once. 0: all.
	Parallelism int `yaml:"parallelism" default:"0" min:"0" max:"32768"`
	// CheckpointEvery is how often the runner stores its own account of a job on a stream. The parameter server knows how far
	// training is, so nothing depends on it: after a failure the runner begins from its last checkpoint, or from the start, and continues
	// where the parameter server is. 0: never.
	CheckpointEvery Duration `yaml:"checkpoint_every" default:"0s" min:"0"`
	// Savepoint is the path of the savepoint or retained checkpoint that the runner restores first.
	Savepoint string `yaml:"savepoint" default:""`
	// BundleTime is how long the runner collects elements of a stream before it hands them on.
	BundleTime Duration `yaml:"bundle_time" default:"200ms" min:"1"`
	// FlinkREST is the address of Flink's own interface, host:port: there a job is cancelled, which its job server does not pass
	// on. checkpoint_every needs it.
	FlinkREST string `yaml:"flink_rest" default:""`
	// Options are further options of the runner, by their names in Beam: {object_reuse: true}.
	Options Options `yaml:"options" default:"{}"`
}

// Dataflow is a project on Google Cloud and what the runner dataflow starts there. Credentials are Google's application default
// credentials. Executors are in containers on the machines of the job: they need ps.addresses, and a source that is there too.
type Dataflow struct {
	// Project is the project that the job runs in.
	Project string `yaml:"project" default:""`
	// Region is the region of the job, such as europe-west1.
	Region string `yaml:"region" default:""`
	// Staging is the folder that the job is uploaded to, gs://BUCKET/PATH.
	Staging string `yaml:"staging" default:""`
	// Temp is the folder for the runner's own files. Default: tmp in staging.
	Temp string `yaml:"temp" default:""`
	// Image is the container image of the executors, with this program as its entry point.
	Image string `yaml:"image" default:""`
	// Workers is the number of machines to begin with. 0: as the runner chooses.
	Workers int64 `yaml:"workers" default:"0" min:"0"`
	// MaxWorkers is the most that the runner may scale to. 0: as the runner chooses.
	MaxWorkers int64 `yaml:"max_workers" default:"0" min:"0"`
	// Threads is how many splits a machine reads at once. 0: as the runner chooses.
	Threads int64 `yaml:"threads" default:"0" min:"0"`
	// Autoscaling is NONE, for workers machines and no more, or THROUGHPUT_BASED. Default: as the runner chooses.
	Autoscaling string `yaml:"autoscaling" default:"" enum:"NONE|THROUGHPUT_BASED"`
	// MachineType is that of the machines, such as n2-standard-4.
	MachineType string `yaml:"machine_type" default:""`
	// MinCPUPlatform is the oldest processor that is accepted, such as "Intel Ice Lake".
	MinCPUPlatform string `yaml:"min_cpu_platform" default:""`
	// DiskGB is the size of a machine's disk. 0: as the runner chooses.
	DiskGB int64 `yaml:"disk_gb" default:"0" min:"0"`
	// DiskType is its type, as a resource of Compute Engine.
	DiskType string `yaml:"disk_type" default:""`
	// WorkerRegion is where the machines are, when not in region.
	WorkerRegion string `yaml:"worker_region" default:""`
	// WorkerZone is the zone of the machines, in the place of worker_region.
	WorkerZone string `yaml:"worker_zone" default:""`
	// Network is the network of the machines, from which shards and source must be reachable.
	Network string `yaml:"network" default:""`
	// Subnetwork is the subnetwork of the machines: regions/REGION/subnetworks/NAME.
	Subnetwork string `yaml:"subnetwork" default:""`
	// PublicIPs gives the machines public addresses.
	PublicIPs bool `yaml:"public_ips" default:"true"`
	// ServiceAccount is the account that the machines act as.
	ServiceAccount string `yaml:"service_account" default:""`
	// KMSKey is the key that the runner encrypts what it keeps with.
	KMSKey string `yaml:"kms_key" default:""`
	// FlexRS is the goal of flexible resource scheduling, for jobs that end: FLEXRS_SPEED_OPTIMIZED or FLEXRS_COST_OPTIMIZED.
	FlexRS string `yaml:"flexrs" default:"" enum:"FLEXRS_SPEED_OPTIMIZED|FLEXRS_COST_OPTIMIZED"`
	// Labels are labels of the job: {team: ranking}.
	Labels Options `yaml:"labels" default:"{}"`
	// Experiments are experiments of Dataflow, beside those that every job has.
	Experiments []string `yaml:"experiments"`
	// ServiceOptions are service options of Dataflow.
	ServiceOptions []string `yaml:"service_options"`
}

// Options are options of a runner by name.
type Options map[string]string

// Values returns the options as Beam wants them: booleans and numbers as such, everything else as text.
func (o Options) Values() map[string]any {
	out := make(map[string]any, len(o))
	for name, text := range o {
		if b, err := strconv.ParseBool(text); err == nil && (text == "true" || text == "false") {
			out[name] = b
		} else if f, err := strconv.ParseFloat(text, 64); err == nil {
			out[name] = f
		} else {
			out[name] = text
		}
	}
	return out
}

// String renders {name: value}.
func (o Options) String() string { return pairs(o) }

// Written implements [conf.Described].
func (Options) Written() string { return "{name: value}" }

// DecodeNode implements [conf.Custom].
func (o *Options) DecodeNode(node *conf.Node, report func(at Where, below, message string)) {
	*o = words(node, "{name: value}", report)
}

// Submits reports whether the graph is submitted to a job service, or to Dataflow.
func (c *Config) Submits() bool {
	return c.Runner == RunnerFlink || c.Runner == RunnerPortable || c.Runner == RunnerDataflow
}

// beam checks what the runner needs.
func (v *validator) beam(c *Config) {
	b := &c.Beam
	for _, a := range []struct{ key, addr string }{{"beam.endpoint", b.Endpoint}, {"beam.flink_rest", b.FlinkREST}} {
		if a.addr == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(a.addr); err != nil || !validPort(port) {
			v.fault(a.key, "is %q, not host:port such as 127.0.0.1:8099", a.addr)
		}
	}
	if c.Runner == RunnerDataflow {
		v.dataflow(c)
		return
	}
	if !c.Submits() {
		return
	}
	if b.Endpoint == "" {
		v.fault("beam.endpoint", "is not set, and the runner %s submits the job there: the address of the job server, such as 127.0.0.1:8099", c.Runner)
	}
	_, stream := c.Source.Stream()
	if c.Runner == RunnerFlink && stream && b.CheckpointEvery > 0 && b.FlinkREST == "" {
		v.fault("beam.flink_rest", "is not set, and a job with checkpoints does not end in Flink when it is drained: give the address of Flink's REST interface, such as 127.0.0.1:8081")
	}
	if b.Environment == Loopback {
		if b.EnvironmentConfig != "" {
			v.fault("beam.environment_config", "is %q, but the executors of environment loopback are in this process", b.EnvironmentConfig)
		}
		return
	}
	if b.EnvironmentConfig == "" {
		v.fault("beam.environment_config", "is not set: environment %s needs %s", b.Environment, map[string]string{
			Process: "the path of this program where the runner's workers are", External: "the address of the worker pool, such as localhost:50000", Docker: "an image with this program as its entry point",
		}[b.Environment])
	}
	v.elsewhere(c, "environment "+b.Environment, b.Environment == Docker)
}

// elsewhere checks what executors in other processes need, which are perhaps in containers that are removed at their end.
func (v *validator) elsewhere(c *Config, where string, removed bool) {
	if !c.PS.Remote() && !c.untrained {
		v.fault("ps.addresses", "are not set, and executors of %s are in other processes: start shards with `monolith ps` and give their addresses", where)
	}
	path := func(key, path string) {
		if path != "" && !filepath.IsAbs(path) {
			v.fault(key, "is used in other processes, so %q must be an absolute path, the same for all of them", path)
		}
	}
	section := func(at, name string, value any) {
		local, ok := value.(component.Local)
		if !ok {
			return
		}
		for _, p := range local.LocalPaths() {
			key := conf.Join(at, name) + "." + p.Key
			if p.Written && removed {
				v.fault(key, "is written by executors of %s, whose containers are removed with all that is in them: write to a topic, or run the executors in processes or pools", where)
				continue
			}
			path(key, p.Path)
		}
	}
	section("source", c.Source.Name(), c.Source.Value())
	if s := c.Backfill.Source; s != nil {
		section("backfill.source", s.Name(), s.Value())
	}
	section("model", c.Model.Name(), c.Model.Value())
	for i := range c.Outputs {
		section(fmt.Sprintf("outputs[%d].to", i), c.Outputs[i].To.Name(), c.Outputs[i].To.Value())
	}
	if d := c.Train.DeadLetter; d != nil {
		section("train.dead_letter", d.Name(), d.Value())
	}
	for i, j := range c.Parse.Joins {
		path(fmt.Sprintf("parse.joins[%d].file", i), j.File)
	}
	if t := c.PS.TLS; t != nil {
		path("ps.tls.cert", t.Cert)
		path("ps.tls.key", t.Key)
		path("ps.tls.ca", t.CA)
	}
	path("ps.token.file", c.PS.Token.File)
}

// dataflowName is what Dataflow accepts as the name of a job.
var dataflowName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// dataflow checks what the runner dataflow needs.
func (v *validator) dataflow(c *Config) {
	d := &c.Beam.Dataflow
	for _, need := range []struct{ key, value, what string }{
		{"project", d.Project, "the project on Google Cloud"},
		{"region", d.Region, "such as europe-west1"},
		{"staging", d.Staging, "a folder for the job's files, gs://BUCKET/PATH"},
		{"image", d.Image, "a container image with this program as its entry point, which `make image` builds"},
	} {
		if need.value == "" {
			v.fault("beam.dataflow."+need.key, "is not set, and the runner dataflow needs it: %s", need.what)
		}
	}
	for _, place := range []struct{ key, value string }{{"staging", d.Staging}, {"temp", d.Temp}} {
		if place.value != "" && !strings.HasPrefix(place.value, "gs://") {
			v.fault("beam.dataflow."+place.key, "is %q, not gs://BUCKET/PATH", place.value)
		}
	}
	if d.MaxWorkers > 0 && d.Workers > d.MaxWorkers {
		v.fault("beam.dataflow.workers", "is %d, more than max_workers, %d", d.Workers, d.MaxWorkers)
	}
	if d.WorkerRegion != "" && d.WorkerZone != "" {
		v.fault("beam.dataflow.worker_zone", "is %q beside worker_region %q: give one of them", d.WorkerZone, d.WorkerRegion)
	}
	if _, stream := c.Source.Stream(); stream && d.FlexRS != "" {
		v.fault("beam.dataflow.flexrs", "is for jobs that end, and the source is a stream")
	}
	if name := cmp.Or(c.Beam.JobName, c.Name); !dataflowName.MatchString(name) {
		v.fault("beam.job_name", "is %q, which Dataflow does not accept: lower-case letters, digits and dashes, first a letter", name)
	}
	v.elsewhere(c, "the runner dataflow", true)
}
