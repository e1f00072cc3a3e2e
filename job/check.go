package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Check looks for everything that would keep a job from running, without reading data: the graph is planned, secrets,
// files and brokers are looked for. Findings are what is wrong with the job; an error says that the check itself failed.
func Check(ctx context.Context, cfg *Config) ([]Finding, error) {
	var findings []Finding
	add := func(path string, err error) {
		for _, e := range flatten(err) {
			findings = append(findings, Finding{Path: path, Message: e.Error()})
		}
	}
	if _, err := BuildPlan(cfg); err != nil {
		add("", err)
	}
	look := func(path string, r reading) {
		if r.source == nil {
			return
		}
		var err error
		if r.source.Parquet != nil {
			opts := r.parseOptions()
			var src pipeline.Source[*pipeline.Batch]
			if src, err = r.parquet(opts); err == nil {
				_, err = src.Splits(ctx)
			}
		} else {
			var src pipeline.Source[*pipeline.Block]
			if src, err = r.blocks(); err == nil {
				_, err = src.Splits(ctx)
			}
		}
		if err != nil {
			add(path, err)
		}
	}
	look("source", cfg.trainReading(1))
	look("eval.source", cfg.evalReading())
	if m, err := cfg.model(); err == nil { // else the plan has told
		if path, err := findSnapshot(cfg.snapshotsIn()); err == nil {
			info, err := snapshot.ReadInfo(path)
			switch {
			case err != nil:
				add("dir", err)
			case info.LayoutHash != m.Layout().Hash():
				add("dir", fmt.Errorf("the newest snapshot %s is of another model; train with another dir, or begin anew with --resume=false", path))
			}
		}
	}
	return findings, nil
}

// flatten takes joined errors and plan faults apart.
func flatten(err error) []error {
	if plan, ok := errors.AsType[*pipeline.PlanError](err); ok {
		return plan.Faults
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok && fmt.Sprintf("%T", err) == "*errors.joinError" {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}
