package parse

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
)

// IDs returns the fids that a sparse feature makes of a text in its column: several with Split, none for an
// empty one. Errors: [pipeline.ErrConfig] for a feature that is not there or not sparse, and for a text that
// it refuses.
func (o Options) IDs(name, text string) ([]int64, error) {
	i := slices.IndexFunc(o.Features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		var names []string
		for _, f := range o.Features {
			if f.Kind != Dense {
				names = append(names, f.Name)
			}
		}
		return nil, fmt.Errorf("parse: there is no feature %q%s: %w", name, nearest.Suggest(name, names), pipeline.ErrConfig)
	}
	one := o.Features[i]
	if one.Kind == Dense {
		return nil, fmt.Errorf("parse: feature %q is dense, so it has no ids: %w", name, pipeline.ErrConfig)
	}
	one.Values = "" // weights of entries, which ids do not depend on
	p, err := compile(Options{Features: []Feature{one}})
	if err != nil {
		return nil, err
	}
	f := &p.features[0]
	f.text = true // the text may come from any format
	var out output
	if err := f.addSparse(&out, &values{kind: texts, texts: [][]byte{[]byte(text)}}); err != nil {
		return nil, fmt.Errorf("parse: %w: %w", err, pipeline.ErrConfig)
	}
	return out.fids.items, nil
}
