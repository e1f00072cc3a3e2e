package spec

import (
	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// Output writes rows of a training run somewhere, each exactly once, whatever was killed when. It keeps its own positions with
// what it writes, and continues where that ends: also when training starts over, so give that another place or name. A folder
// that has rows of another name, kind or job is refused; in a topic they lie side by side. An output that is added to a job that
// has trained gets everything from the beginning of the source on, and predictions of what was trained before are made by the
// model as it is then.
type Output struct {
	// Name distinguishes outputs, in the plan and, before that of the job, in a topic that several of them share.
	Name string `yaml:"name" required:"true"`
	// Of chooses what is written: rows are the batches that are trained on, with their features as fids and numbers, label and
	// weight; predictions are what the model predicted for each row before it was trained on (in a first epoch), with label,
	// weight, time, line id and whatever else distinguishes the row. Both have the position in the source.
	//
	// Predictions that are made again after a crash are the same under ps.durability: none, since what is not in a snapshot
	// is trained again. Under wal, and where a worker dies and shards in other processes do not go back, those of the last moments are
	// made by a model that has learnt from their rows already.
	Of string `yaml:"of" required:"true" enum:"rows|predictions"`
	// To is where they are written.
	To OutputTo `yaml:"to" required:"true"`
}

// OutputTo is exactly one place for rows.
type OutputTo struct {
	conf.Pick[component.SinkConfig]
}
