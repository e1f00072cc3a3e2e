package components

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/model/optim"
)

// ruleDefaults are the settings of a rule that names none, for the section of an optimizer: its keys are those of the rule.
func ruleDefaults(o optim.Optimizer) map[string]string {
	out := map[string]string{}
	for key, value := range optim.RuleOf(o).Settings {
		out[key] = string(value)
	}
	return out
}

// written renders a default as a job file has it.
func written(value any) string {
	switch v := value.(type) {
	case []int:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", ",")
	case conf.Duration:
		if text, ok := strings.CutSuffix(v.String(), "m0s"); ok {
			return text + "m"
		}
	}
	return fmt.Sprint(value)
}

// size is a number of bytes as a section has it.
func size[T int | int64](bytes T) conf.Size { return conf.Size(bytes) }
