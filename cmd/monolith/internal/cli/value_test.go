package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

// TestValueFlags names rows by a feature's values in place of ids.
func TestValueFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, want string // want: the ids, or a part of the error
	}{
		{"ps lookup DIR item 3:17 3:18", "844424930131985 844424930131986"},
		{"ps lookup DIR item --feature title --value ab --value cde", "2 3"},
		{"model nearest DIR item --feature title --value abc", "3"},
		{"model nearest DIR item --feature title --value a --value b", "2 ids; rows are compared with one"},
		{"model nearest DIR item", "nearest needs an id"},
		{"model nearest DIR item 1 2", "does not know what to do with"},
		{"ps lookup DIR item", "lookup needs an id"},
		{"ps lookup DIR --feature title --value a", "lookup needs a table"},
		{"ps lookup DIR item --feature title", "go together"},
		{"model nearest DIR item --value a", "go together"},
		{"ps lookup DIR item 3:17 --feature title --value a", "give one of the two"},
	} {
		var got []int64
		a := &App{Stdout: io.Discard, Stderr: io.Discard}
		a.Ops.PS.IDs = func(*job.Config, job.ValueOptions) ([]int64, error) { panic("no job file is named") }
		a.Ops.PS.IDsStored = func(_ context.Context, path string, o job.ValueOptions) (ids []int64, err error) {
			if path != "DIR" || o.Feature != "title" || o.Table != "item" {
				t.Errorf("%s: values %+v of %s", c.args, o, path)
			}
			for _, v := range o.Values {
				ids = append(ids, int64(len(v)))
			}
			return ids, nil
		}
		a.Ops.PS.LookUp = func(context.Context, *job.Config, job.LookUpOptions) (*job.LookedUp, error) {
			panic("no job file is named")
		}
		a.Ops.PS.LookUpStored = func(_ context.Context, _, _ string, ids []int64) (*job.LookedUp, error) {
			got = ids
			return &job.LookedUp{}, nil
		}
		a.Ops.Models.Nearest = func(_ context.Context, _ string, o job.NearestOptions) (*job.NearestRows, error) {
			got = []int64{o.ID}
			return &job.NearestRows{}, nil
		}
		a.screen = ui.NewScreen(io.Discard, true, a.getenv)
		root := a.root(&outcome{})
		root.SetArgs(strings.Fields(c.args))
		text := ""
		if err := root.ExecuteContext(t.Context()); err != nil {
			text = err.Error()
		}
		for _, id := range got {
			text += " " + fmt.Sprint(id)
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.args, text, c.want)
		}
	}
}
