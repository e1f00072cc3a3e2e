//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestPrismHoldsOutTheSame: rows without a column that decides are held out alike on Prism and without a runner, in training and in evaluation.
func TestPrismHoldsOutTheSame(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		User  int64 `parquet:"user"`
		Click int64 `parquet:"click"`
	}
	var rows []row
	var csv strings.Builder
	csv.WriteString("user,click\n")
	for i := range 600 {
		rows = append(rows, row{int64(i * 7 % 40), int64(i * i % 11 % 2)})
		fmt.Fprintf(&csv, "%d,%d\n", rows[i].User, rows[i].Click)
	}
	for _, source := range []string{"text: {files: [FOLDER/a.csv]}}\nparse: {format: csv, header: true, ", "parquet: {files: [FOLDER/a.parquet]}}\nparse: {"} {
		var want string
		for _, runner := range []string{"local", "prism"} {
			dir, job := makeJob(t, "version: 1\ndir: DIR\ndeterministic: true\nepochs: 2\nshuffle: {rows: 100}\nsource: {"+source+"features: [{name: user}], label: click}\nmodel: lr\neval: {holdout: {share: 0.2}}\n")
			folder := filepath.Dir(job)
			text, err := os.ReadFile(job)
			if err == nil {
				err = os.WriteFile(job, []byte(strings.ReplaceAll(string(text), "FOLDER", folder)), 0o644)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, "a.csv"), []byte(csv.String()), 0o644)
			}
			if err == nil {
				err = parquet.WriteFile(filepath.Join(folder, "a.parquet"), rows, parquet.MaxRowsPerRowGroup(70))
			}
			if err != nil {
				t.Fatal(err)
			}
			figures := func(command string) string {
				o := monolith(t, command, job, "--json", "--runner="+runner)
				var shown struct {
					Result struct {
						Examples int
						HeldOut  int `json:"held_out"`
						Metrics  map[string]float64
					}
				}
				if err := json.Unmarshal([]byte(o.stdout), &shown); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, o.stderr)
				}
				return fmt.Sprintf("%d examples, %d held out, log loss %v", shown.Result.Examples, shown.Result.HeldOut, shown.Result.Metrics["log_loss"])
			}
			got := strings.Join([]string{figures("train"), digest(t, path, dir), figures("eval")}, "\n")
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: on %s\n%s\nlocally\n%s", source, runner, got, want)
			}
		}
	}
}
