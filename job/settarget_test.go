package job_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestSetTargetGoesByTheJob: whether the first line of csv names the columns, a job of csv says, and no guess.
func TestSetTargetGoesByTheJob(t *testing.T) {
	t.Parallel()
	const features = "features: [{name: user, slot: 1}], label: click}\nmodel: lr\n"
	for name, tt := range map[string]struct {
		parse, rows string
		want        string
	}{
		"header, a blank name":    {"{format: csv, header: true, ", "user,,click\n1,x,0\n", "predict.header=true"},
		"header, a year":          {"{format: csv, header: true, ", "user,2024,click\n1,x,0\n", "predict.header=true"},
		"header, words":           {"{format: csv, header: true, ", "user,user,click\na,b,c\n", "predict.header=true"},
		"columns, words":          {"{format: csv, columns: [user, site, click], ", "u1,s1,a\nu2,s2,b\n", "predict.header=false"},
		"columns, the same names": {"{format: csv, columns: [user, site, click], ", "user,site,click\nu2,s2,b\n", "predict.header=true"},
		"columns, some names":     {"{format: csv, columns: [user, site, click], ", "site,user\ns2,u2\n", "predict.header=true"},
		"columns, a name twice":   {"{format: csv, columns: [user, site, click], ", "user,user\ns2,u2\n", "predict.header=false"},
		"JSON, words":             {"{format: jsonl, ", "user,site\n1,s1\n", "predict.header=true"},
		"no job":                  {"", "user,site\n1,s1\n", "predict.header=true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "new.csv")
			if err := os.WriteFile(file, []byte(tt.rows), 0o600); err != nil {
				t.Fatal(err)
			}
			var cfg *job.Config
			if tt.parse != "" {
				var err error
				if cfg, err = job.Decode([]byte("version: 1\nname: x\nsource: {text: {files: [rows]}}\nparse: "+tt.parse+features), "x.yaml", job.LoadOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if keys, err := job.SetTarget(file, cfg); err != nil || !slices.Contains(keys, tt.want) {
				t.Errorf("%q, %v, want %s", keys, err, tt.want)
			}
		})
	}
}
