package spec

import (
	"github.com/monolith-go/monolith/internal/conf"
)

// Finding is something `check` has to say about a job.
type Finding struct {
	// Path is the key path, or empty.
	Path string `json:"path,omitempty"`
	// Where is file:line:col, or empty.
	Where string `json:"where,omitempty"`
	// Message is what is wrong and what to do.
	Message string `json:"message"`
	// Suggestion is the name that was probably meant, or empty.
	Suggestion string `json:"suggestion,omitempty"`
}

// Findings turns the faults of a job into findings.
func (e *ConfigError) Findings() []Finding {
	out := make([]Finding, 0, len(e.Faults))
	for _, f := range e.Faults {
		g := Finding{Path: f.Path, Message: f.Message, Suggestion: f.Suggestion}
		if f.Where.Layer != conf.FromDefault {
			g.Where = f.Where.String()
		}
		out = append(out, g)
	}
	return out
}
