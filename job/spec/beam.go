package spec

import (
	"net"
	"path/filepath"
	"strconv"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// The runners of a job.
const (
	RunnerLocal    = "local"
	RunnerFlink    = "flink"
	RunnerPortable = "portable"
)

// Where the executors of a submitted job are.
const (
	Loopback = "loopback"
	Process  = "process"
	External = "external"
	Docker   = "docker"
)

// Beam is the job service that the runners flink and portable submit the training graph to.
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

// Submits reports whether the graph is submitted to a job service.
func (c *Config) Submits() bool { return c.Runner == RunnerFlink || c.Runner == RunnerPortable }

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
	if !c.PS.Remote() {
		v.fault("ps.addresses", "are not set, and executors of environment %s are in other processes: start shards with `monolith ps` and give their addresses", b.Environment)
	}
	if files, ok := c.Source.Value().(component.Files); ok {
		for _, file := range files.FileList() {
			if !filepath.IsAbs(file) {
				v.fault(conf.Join("source", c.Source.Name())+".files", "are read in other processes, so %q must be an absolute path that is the same for all of them", file)
			}
		}
	}
}
