package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/ps"
)

// Trainer is what a run must not forget, stored in every snapshot's cut beside the rows and positions.
type Trainer struct {
	// Source is what is trained on; all the rest belongs to it.
	Source string `json:"source"`
	// Epochs counts the epochs that are complete, evaluated and decided on, and Concluded names the positions that the last
	// of them ended at ([placesOf]): a worker that finds the shards there must not conclude again. Both are stored in one step
	// with what was decided.
	Epochs    int    `json:"epochs"`
	Concluded string `json:"concluded,omitempty"`
	// LR is the factor on all learning rates.
	LR float32 `json:"lr"`
	// Best and Bad are the plateau's best metric and the evaluations since; StopBest and StopBad the early stop's.
	Best, StopBest *float64
	Bad, StopBad   int
	// Top is the best value that the watched metric ([spec.Config.Watched]), TopOf, has had, by however little, TopEpoch the epoch and TopAt the
	// places ([placesOf]) that it had it at: the snapshot taken there is the best. States of versions before have no TopOf.
	Top      *float64 `json:"top,omitempty"`
	TopOf    string   `json:"top_of,omitempty"`
	TopEpoch int      `json:"top_epoch,omitempty"`
	TopAt    string   `json:"top_at,omitempty"`
	// Stopped reports whether early_stop has ended training.
	Stopped bool `json:"stopped"`
	// Metrics are those of the last evaluation.
	Metrics result.Scores `json:"metrics"`
}

// TrainerKey is the key of worker state that holds it.
const TrainerKey = "trainer"

// KernelsKey is the key of worker state that names the family of kernels that a job began with.
const KernelsKey = "kernels"

// ReferenceBatchKey is the key of worker state that holds the decimal batch size that gradients of rows go by (train.reference_batch). It goes with parameters
// that another job begins with, as the optimizers' state does.
const ReferenceBatchKey = "reference_batch"

// ReferenceBatch is the reference batch size in worker state; 0 where there is none.
func ReferenceBatch(state map[string][]byte) int {
	n, err := strconv.Atoi(string(state[ReferenceBatchKey]))
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// State is what keeps worker state.
type State interface {
	State(ctx context.Context, key string) ([]byte, error)
}

// SetState keeps a blob of worker state; nil removes it.
type SetState func(ctx context.Context, key string, value []byte) error

// OfSource are the keys of worker state that start over with another source. The last says which source the others are of.
func OfSource() []string { return []string{ps.TraceState, ps.TotalsState, TrainerKey} }

// RestoreTrainer takes up what a snapshot stored, unless that was training on another source: then epochs and learning rate
// start over, and the trace and its totals are emptied, with the parameters as they are ([OfSource]). Only the leader of the workers stores that; for
// the others set is nil.
func RestoreTrainer(ctx context.Context, store State, source string, set SetState) (*Trainer, error) {
	s := &Trainer{LR: 1}
	b, err := store.State(ctx, TrainerKey)
	if err != nil {
		return nil, fmt.Errorf("job: the trainer state: %w", err)
	}
	if b != nil {
		if err := json.Unmarshal(b, s); err != nil {
			return nil, fmt.Errorf("job: the snapshot's trainer state: %w", err)
		}
	}
	if s.Source != source {
		s = &Trainer{Source: source, LR: 1}
		if set == nil {
			return s, nil
		}
		for _, key := range []string{ps.TraceState, ps.TotalsState} {
			if err := set(ctx, key, nil); err != nil {
				return nil, fmt.Errorf("job: emptying the trace: %w", err)
			}
		}
		// Whose the trace is from now on is known with it: another restart must not empty it again.
		return s, s.Store(ctx, set)
	}
	return s, nil
}

// Store puts the state where the next cut finds it.
func (s *Trainer) Store(ctx context.Context, set SetState) error {
	js, err := json.Marshal(s)
	if err != nil {
		panic("job: trainer state does not marshal: " + err.Error()) // numbers and null only
	}
	if err := set(ctx, TrainerKey, js); err != nil {
		return fmt.Errorf("job: storing the trainer state: %w", err)
	}
	return nil
}
