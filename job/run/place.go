package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
)

// predictedOf is what the predictions of a place are of: all that they depend on beside the records.
type predictedOf struct {
	Job      string    `json:"job"`
	Snapshot string    `json:"snapshot"`
	Created  time.Time `json:"created"` // of the snapshot
	Model    string    `json:"model"`   // a hash
	Fields   []string  `json:"fields"`
}

// differences says what is not the same in other predictions.
func (of predictedOf) differences(other predictedOf) (out []string) {
	if of.Job != other.Job {
		out = append(out, fmt.Sprintf("of job %s, not %s", other.Job, of.Job))
	}
	if of.Snapshot != other.Snapshot || !of.Created.Equal(other.Created) {
		out = append(out, fmt.Sprintf("of snapshot %s of %s, not %s of %s", other.Snapshot, other.Created.UTC().Format(time.DateTime), of.Snapshot, of.Created.UTC().Format(time.DateTime)))
	} else if of.Model != other.Model {
		out = append(out, "of a model with other settings")
	}
	if !slices.Equal(of.Fields, other.Fields) {
		out = append(out, fmt.Sprintf("with the fields %s, not %s", strings.Join(other.Fields, ","), strings.Join(of.Fields, ",")))
	}
	return out
}

// splitKept is what is kept of a split beside its predictions: its content's identity and, where it has grown, that of what was last seen of it,
// and what its source wants remembered.
type splitKept struct {
	Identity string `json:"id,omitempty"`
	Seen     string `json:"seen,omitempty"`
	Memory   string `json:"memory,omitempty"`
}

const (
	predictionsFile = "_predictions.json"
	predictionsLock = "_predictions.lock"
	// maxPredictionsFile bounds what is read of it.
	maxPredictionsFile = 256 << 20
)

// place is where predictions are written, with a file that says what they are of: in the folder that they are written to, or for a sink
// that has none in the job's dir. How far they are the sink knows itself. It is one process's at a time.
type place struct {
	text   string // the folder or the name of the sink
	file   string
	output string // what tells these predictions from others in the same place
	lock   *fsx.Lock

	mu      sync.Mutex
	record  placeRecord
	written []byte
	packed  []string // see compressed
}

// placeRecord is what the file has.
type placeRecord struct {
	predictedOf
	Splits map[string]*splitKept `json:"splits"`
}

// openPlace makes a place one of these predictions, or finds that it is one already. Errors: [pipeline.ErrConfig] for one of others;
// [pipeline.ErrUnavailable].
func openPlace(ctx context.Context, c *spec.Config, of predictedOf) (_ *place, err error) {
	id, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	part := of.Snapshot + "-" + hashed(string(id))
	p := &place{text: c.Predict.To.Name(), output: "predictions/" + of.Job + "/" + part, record: placeRecord{predictedOf: of, Splits: map[string]*splitKept{}}}
	key, dir := c.Predict.To.Value().Place()
	p.file = filepath.Join(dir, predictionsFile)
	if dir == "" {
		dir = filepath.Join(c.Dir, "predictions", part)
		p.file = filepath.Join(dir, predictionsFile)
	} else {
		p.text = named(c.Predict.To.Value(), key, dir)
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			if _, err := os.Stat(p.file); errors.Is(err, fs.ErrNotExist) && !untouched(entries) {
				return nil, fault.Config("job: %s is not empty, and its files are no predictions: name another folder", dir)
			}
		}
	}
	cannot := func(err error) error {
		return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another place")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, cannot(err)
	}
	if p.lock, err = fsx.TryLock(filepath.Join(dir, predictionsLock)); errors.Is(err, fsx.ErrLocked) {
		return nil, fault.Mark(fmt.Errorf("job: another process writes predictions to %s", dir), pipeline.ErrUnavailable, "wait for it to end, or name another place")
	} else if err != nil {
		return nil, cannot(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.lock.Close())
		}
	}()
	have, err := fsx.ReadFile(ctx, fsx.Local{}, p.file, maxPredictionsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, p.write(ctx)
	}
	if err != nil {
		return nil, cannot(err)
	}
	var found placeRecord
	if err := json.Unmarshal(have, &found); err != nil {
		return nil, fault.Config("job: %s does not say what the predictions beside it are of (%w): name another place", p.file, err)
	}
	if diff := of.differences(found.predictedOf); len(diff) > 0 {
		return nil, fault.Config("job: %s has predictions %s: name another place for these", dir, strings.Join(diff, ", and "))
	}
	for name, s := range found.Splits {
		if s != nil {
			p.record.Splits[name] = s
		}
	}
	p.written = have
	return p, nil
}

// named is the folder of a sink as the job names it, which is what its user looks for.
func named(to component.SinkConfig, key, dir string) string {
	if local, ok := to.(component.Local); ok {
		for _, p := range local.LocalPaths() {
			if p.Key == key {
				return p.Path
			}
		}
	}
	return dir
}

// untouched reports whether a folder has nothing but what a run leaves that was killed as it began.
func untouched(entries []os.DirEntry) bool {
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != predictionsLock && !strings.HasPrefix(e.Name(), ".") })
}

// known is what is known of the splits that were predicted before: a file is the split whose bytes it begins with.
func (p *place) known() wiring.Known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := wiring.Known{Identities: map[string]string{}, Seen: map[string]string{}, Follow: map[string]bool{}}
	for name, s := range p.record.Splits {
		if s.Identity != "" {
			k.Identities[name], k.Follow[name] = s.Identity, true
		}
		if s.Seen != "" {
			k.Seen[name] = s.Seen
		}
	}
	return k
}

// probe finds out what there is to read, and stores that before anything is read. A source with memories says it itself, to recall.
func (p *place) probe(ctx context.Context, r wiring.Reading) (wiring.Known, error) {
	r.Known = p.known()
	if _, stream := r.Source.Stream(); stream {
		return r.Known, nil
	}
	for range 2 { // one that has grown may be several splits now
		splits, err := r.Splits(ctx)
		if err != nil {
			return r.Known, err
		}
		before := r.Known
		p.mu.Lock()
		p.took(splits)
		p.mu.Unlock()
		if r.Known = p.known(); maps.Equal(r.Known.Seen, before.Seen) {
			break
		}
	}
	return r.Known, p.write(ctx)
}

// took takes note of splits that are there. It needs the lock.
func (p *place) took(splits []pipeline.Split) {
	var fresh []string
	for _, s := range splits {
		kept := p.record.Splits[s.Name]
		if kept == nil {
			kept = &splitKept{}
			p.record.Splits[s.Name] = kept
			fresh = append(fresh, s.Name)
		}
		kept.Identity, kept.Seen = s.Identity, s.Seen
	}
	p.packed = append(p.packed, compressed(splits, fresh, p.record.Splits)...)
}

// recall lists the splits of a plan as they were when they were first taken up, and stores that where it is new, before anything is read.
// Errors: those of the source; [*pipeline.GapError] for one that is another than it was.
func (p *place) recall(ctx context.Context, plan *pipeline.Plan) ([]pipeline.Split, error) {
	splits, err := plan.Splits(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	known := map[string]string{}
	for name, s := range p.record.Splits {
		if s.Memory != "" {
			known[name] = s.Memory
		}
	}
	p.mu.Unlock()
	if r, ok := plan.Segments[0].Sources()[0].Source.(pipeline.Rememberer); ok {
		if splits, err = r.Recall(splits, known); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	for _, s := range splits {
		p.record.Splits[s.Name] = &splitKept{Identity: s.Identity, Seen: s.Seen, Memory: s.Memory}
	}
	p.mu.Unlock()
	return splits, p.write(ctx)
}

// remember is [pipeline.Env].Memory. What it says holds for positions before and behind the sink's, so it is stored when the run ends.
func (p *place) remember(split pipeline.SplitID, memory string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.record.Splits[split.Split]; s != nil {
		s.Memory = memory
	}
}

// write stores the record where it is new.
func (p *place) write(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := json.MarshalIndent(p.record, "", "  ")
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if now = append(now, '\n'); bytes.Equal(now, p.written) {
		return nil
	}
	if err := fsx.WriteFile(ctx, fsx.Local{}, p.file, now); err != nil {
		return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there; the same command continues")
	}
	p.written = now
	return nil
}

// close stores what is remembered and lets others have the place.
func (p *place) close(ctx context.Context) error {
	return errors.Join(p.write(ctx), p.lock.Close())
}
