package stored

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Fits tells whether a snapshot was trained on the job's features; moved are the changes that may be. Errors:
// [pipeline.ErrConfig].
func Fits(c *spec.Config, info *snapshot.Info) (moved []string, err error) {
	stored, err := spec.DecodeRecipe(info.Recipe)
	if err != nil {
		return nil, fault.Config("job: snapshot %s: %w: use another dir, or begin anew with --resume=false", info.Path, err)
	}
	faults, moved := stored.Differences(c.Parse.Recipe(), "was", "is")
	if len(faults) > 0 {
		return moved, fault.Config("job: snapshot %s was trained on other features than the job's (its parameters would be used for what they were not trained on):\n  %s\n"+
			"set parse back to what it was; or give the job another dir, or --resume=false, to train anew", info.Path, strings.Join(faults, "\n  "))
	}
	return moved, nil
}

// FitsNewest compares the job with the newest good snapshot of its dir, if there is one.
func FitsNewest(c *spec.Config, notice func(string, ...any)) error {
	entries, err := snapshot.List(SnapshotsIn(c))
	if err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Err == nil })
	if i < 0 {
		return nil
	}
	moved, err := Fits(c, entries[i].Info)
	if err == nil && len(moved) > 0 {
		notice("other columns are read than for snapshot %s: %s", entries[i].Path, strings.Join(moved, "; "))
	}
	return err
}
