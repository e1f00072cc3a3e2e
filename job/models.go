package job

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
)

// ListModels lists what a job can name under model, with figures for so many sparse features of one id each. Errors: [pipeline.ErrConfig] for fewer than
// 2 features, as pairs of them meet in some models.
func ListModels(features int) ([]ModelEntry, error) {
	if features < 2 {
		return nil, fault.Config("job: figures for %d features: pairs of them meet in some models, so there must be 2 at least", features)
	}
	var text strings.Builder
	text.WriteString("version: 1\nsource: synthetic\nparse:\n  features:\n")
	for i := range features {
		fmt.Fprintf(&text, "    - {name: f%d, slot: %d}\n", i, i+1)
	}
	describe := func(name, more string) (*ModelInfo, error) {
		cfg, err := Decode([]byte(text.String()+more+"\nmodel: "+name), "list", LoadOptions{})
		if err != nil {
			return nil, err
		}
		return DescribeModel(cfg, 1)
	}
	var out []ModelEntry
	for _, c := range components.All().Models {
		m := ModelEntry{Name: c.Name, Doc: c.Doc}
		if info, err := describe(c.Name, "  label: click"); err == nil { // what needs more than settings has no figures
			m.Parameters, m.RowDim, m.FLOPs = info.Parameters, info.Tables[0].Dim, info.FLOPs
			_, err := describe(c.Name, "heads: [{name: click}, {name: buy}]")
			m.Heads = err == nil
		}
		out = append(out, m)
	}
	return out, nil
}
