package job_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
)

// sealed is the section of a source that nothing opens: OpenBlocks has other arguments.
type sealed struct{}

func (*sealed) Formats() []string   { return []string{"csv"} }
func (*sealed) UsualFormat() string { return "csv" }
func (*sealed) Bounded() bool       { return true }
func (*sealed) OpenBlocks() error   { return nil }

// TestSourceWithoutOpen: a program's source that has no method to open it is an error of the job, not of its run.
func TestSourceWithoutOpen(t *testing.T) {
	t.Parallel()
	parts := components.All()
	parts.Sources = append(parts.Sources, component.Source{Name: "sealed", Doc: "is never opened.", New: func() component.SourceConfig { return &sealed{} }})
	_, err := job.Decode([]byte(`
version: 1
source: sealed
parse: {columns: [user, click], features: [{name: user}], label: click}
model: lr
`), "sealed.yaml", job.LoadOptions{Components: parts})
	want := "source.sealed: cannot be opened: *job_test.sealed has neither the method OpenBlocks (component.Blocks) nor OpenColumns and Describe (component.Columns); add one of them"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
