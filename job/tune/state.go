package tune

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/pipeline"
)

// stateFile holds the state in the search's dir.
const stateFile = "tune.json"

// maxState is how large a state can be, in bytes.
const maxState = 64 << 20

// state is what is stored of a search.
type state struct {
	Version int `json:"version"`
	// Asked is what the search is of. One that differs is another search.
	Asked asked `json:"asked"`
	// Total is how many rows the job trains on altogether; 0: more than were asked for yet.
	Total int64 `json:"total,omitempty"`
	// Rows are those of each rung that was begun.
	Rows []int64 `json:"rows"`
	// Range is the part of a stream that is read, nil without one.
	Range *span `json:"range,omitempty"`
	// Seconds is how long the search has taken.
	Seconds float64 `json:"seconds"`
	Trials  []trial `json:"trials"`
}

// span is a part of a stream, by its splits.
type span struct {
	From map[string]pipeline.Position `json:"from"`
	To   map[string]pipeline.Position `json:"to"`
}

// asked says which search it is.
type asked struct {
	Job    string   `json:"job_sha256"`
	Set    []string `json:"set,omitempty"`
	Env    []string `json:"env,omitempty"`
	Seed   uint64   `json:"seed"`
	Trials int      `json:"trials"`
	Rows   int64    `json:"rows"`
	Models []string `json:"models,omitempty"`
	Metric string   `json:"metric"`
	Space  []string `json:"space"`
}

// trial is one training that is done.
type trial struct {
	Rung      int  `json:"rung"`
	Candidate int  `json:"candidate"`
	OtherSeed bool `json:"other_seed,omitempty"`
	// Planned is how many rows it was given at most, Rows how many it trained on.
	Planned int64            `json:"planned"`
	Rows    int64            `json:"rows"`
	Scores  result.Scores    `json:"scores,omitempty"`
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	Lost    string           `json:"lost,omitempty"`
	Seconds float64          `json:"seconds"`
}

func (s *search) asked() asked {
	raw := s.cfg.Raw()
	sum := sha256.Sum256(raw.Text)
	a := asked{
		Job: hex.EncodeToString(sum[:]), Set: raw.Set, Env: raw.Env, Seed: s.o.Seed, Trials: s.o.Trials, Rows: s.o.Rows,
		Models: s.o.Models, Metric: s.score,
	}
	for i := range s.candidates {
		a.Space = append(a.Space, s.candidates[i].String())
	}
	return a
}

// changed names what differs between two searches; empty: nothing does.
func (a *asked) changed(b *asked) string {
	var out []string
	for _, d := range []struct {
		name string
		same bool
	}{
		{"the job file", a.Job == b.Job},
		{"--set", slices.Equal(a.Set, b.Set)},
		{"the environment's MONOLITH_ variables", slices.Equal(a.Env, b.Env)},
		{"--seed", a.Seed == b.Seed},
		{"--trials", a.Trials == b.Trials},
		{"--rows", a.Rows == b.Rows},
		{"--models", slices.Equal(a.Models, b.Models)},
		{"--metric", a.Metric == b.Metric},
	} {
		if !d.same {
			out = append(out, d.name)
		}
	}
	if len(out) == 0 && !slices.Equal(a.Space, b.Space) {
		return "what this version of the program tries"
	}
	return strings.Join(out, ", ")
}

// open reads the state of an earlier run, or begins one.
func (s *search) open(ctx context.Context) error {
	path := filepath.Join(s.dir, stateFile)
	if err := os.RemoveAll(s.trialsDir()); err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	if s.o.Restart {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Unavailable(fmt.Errorf("job: %w", err))
		}
	}
	asked := s.asked()
	b, err := fsx.ReadFile(ctx, fsx.Local{}, path, maxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.state = &state{Version: 1, Asked: asked, Total: s.cfg.Train.MaxExamples}
		if err := s.freeze(ctx); err != nil {
			return err
		}
		return s.state.store(ctx, s.dir)
	case err != nil:
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	st := &state{}
	if err := json.Unmarshal(b, st); err != nil || st.Version != 1 || !st.sound(len(s.candidates)) {
		return fault.Config("job: %s is damaged or of another version: begin again with --restart", path)
	}
	if what := st.Asked.changed(&asked); what != "" {
		return fault.Config("job: %s has a search that is another: %s changed since. Set it back to continue, begin again with --restart, or name another folder with --dir", s.dir, what)
	}
	s.state, s.earlier = st, len(st.Trials)
	s.spent = time.Duration(st.Seconds * float64(time.Second))
	if s.earlier > 0 {
		s.notice("continuing the search in %s: %d trials are done", s.dir, s.earlier)
	}
	return nil
}

// sound reports whether trials are of candidates and rungs that there are.
func (st *state) sound(candidates int) bool {
	for _, t := range st.Trials {
		if t.Candidate < 0 || t.Candidate >= candidates || t.Rung < 0 || t.Rung >= len(st.Rows) {
			return false
		}
	}
	return st.Total >= 0 && st.Seconds >= 0
}

// store writes the state. It is on the disk as a whole or not at all.
func (st *state) store(ctx context.Context, dir string) error {
	b, err := json.MarshalIndent(st, "", " ")
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := fsx.WriteFile(context.WithoutCancel(ctx), fsx.Local{}, filepath.Join(dir, stateFile), append(b, '\n')); err != nil {
		return fault.Unavailable(fmt.Errorf("job: the state of the search: %w", err))
	}
	return nil
}

// find returns a trial that is done; nil: it is not.
func (st *state) find(rung, candidate int, otherSeed bool) *trial {
	for i := range st.Trials {
		if t := &st.Trials[i]; t.Rung == rung && t.Candidate == candidate && t.OtherSeed == otherSeed {
			return t
		}
	}
	return nil
}

func (st *state) add(t *trial) {
	if t.Rung == len(st.Rows) {
		st.Rows = append(st.Rows, t.Planned)
	}
	st.Trials = append(st.Trials, *t)
}

// drop forgets the trials of the last rung: it has other rows now.
func (st *state) drop(rung int) {
	st.Trials = slices.DeleteFunc(st.Trials, func(t trial) bool { return t.Rung == rung })
	st.Rows = st.Rows[:rung]
}
