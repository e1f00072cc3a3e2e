package jobbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
)

// frappeJob is examples/frappe/deepfm.yaml.
//
//go:embed frappe.yaml
var frappeJob []byte

// frappeTarget is the validation AUC that both train to; the best of a run are .9845 to .9855.
const frappeTarget = .984

// errUnreached means that training ended below the target.
var errUnreached = errors.New("training ended before the target")

// Frappe measures how many seconds DeepFM on the Frappe data set takes to a validation AUC of .984, with seeds 1 to o.Rounds: ours is the whole job from reading
// its files to the evaluation that says so; PyTorch has its rows in memory before its time begins. Both train on all processors. Ours runs twice with a seed, which is the control. The environment
// variable MONOLITH_DATA names the folder that has datasets/frappe.
func Frappe(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	data := os.Getenv("MONOLITH_DATA")
	if data == "" {
		return nil, errors.New("MONOLITH_DATA is not set: name the folder that has datasets/frappe (examples/frappe/README.md says where the files are from)")
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	for seed := 1; seed <= o.Rounds; seed++ {
		name := fmt.Sprintf("frappe deepfm to %v, seed %d", frappeTarget, seed)
		if !o.Wants(name) {
			continue
		}
		r, err := reach(ctx, o, name, seed, data, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// reach compares the times of one seed.
func reach(ctx context.Context, o bench.Options, name string, seed int, data, dir string) (bench.Result, error) {
	r := bench.Result{Name: name, Theirs: map[string]float64{}, Absent: map[string]string{}, Unit: "s", Machine: bench.Machine()}
	first, err := reachOurs(ctx, seed, data, filepath.Join(dir, "run"))
	if err != nil {
		return r, err
	}
	torch := rival{
		name: "torch", program: "torch", script: "frappe_torch.py",
		args: []string{filepath.Join(data, "datasets", "frappe"), strconv.Itoa(runtime.GOMAXPROCS(0)), strconv.Itoa(seed), fmt.Sprint(frappeTarget)},
		check: func(auc float64) error {
			if auc < frappeTarget {
				return fmt.Errorf("%w: %.5f", errUnreached, auc)
			}
			return nil
		},
	}
	c, stop, err := torch.startScript(ctx, o, dir, 30)
	if why, ok := errors.AsType[*absentError](err); ok {
		r.Absent[torch.name] = why.reason
	} else if err != nil {
		return r, err
	} else {
		_, took, err := c.Timed()
		stop()
		if err != nil {
			return r, err
		}
		r.Theirs[c.Name] = took
	}
	second, err := reachOurs(ctx, seed, data, filepath.Join(dir, "run"))
	if err != nil {
		return r, err
	}
	r.Ours, r.Control = (first+second)/2, second/first
	for _, took := range r.Theirs {
		r.Ratio = r.Ours / took
	}
	return r, nil
}

// reachOurs runs the job until it has reached the target, and returns after how many seconds that was.
func reachOurs(ctx context.Context, seed int, data, dir string) (seconds float64, err error) {
	begin := time.Now()
	cfg, err := job.Decode(frappeJob, "frappe.yaml", job.LoadOptions{Set: []string{fmt.Sprintf("seed=%d", seed), "dir=" + dir, "log.level=error"}, Env: []string{"MONOLITH_DATA=" + data}})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	best := 0.
	_, err = job.Run(ctx, cfg, job.RunOptions{Evaluated: func(_ int, s job.Scores) {
		if best = max(best, s["auc"]); best >= frappeTarget && seconds == 0 {
			seconds = time.Since(begin).Seconds()
			cancel()
		}
	}})
	switch {
	case seconds > 0: // it was ended here
		return seconds, os.RemoveAll(dir)
	case err != nil:
		return 0, err
	}
	return 0, fmt.Errorf("%w: %.5f", errUnreached, best)
}
