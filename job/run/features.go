package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/rpc"
)

// otherFeatures says, feature by feature, why a process of another job file was refused.
func otherFeatures(c *spec.Config, err error) error {
	refused, ok := errors.AsType[*rpc.RecipeError](err)
	if !ok {
		return err
	}
	theirs, derr := spec.DecodeRecipe([]byte(refused.Recipe))
	if derr != nil {
		return err
	}
	faults, moved := theirs.Differences(c.Recipe(), "at shard 0 is", "here")
	if faults = append(faults, moved...); len(faults) == 0 {
		return err
	}
	return fault.Mark(
		fmt.Errorf("job: the shards at ps.addresses train on other features than this process:\n  %s\n%w", strings.Join(faults, "\n  "), err),
		pipeline.ErrConfig, "",
	)
}
