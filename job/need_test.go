package job_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
)

// needJob is a job of two tables on a file of n rows with ids by Zipf's law, and returns how many different ids its features have.
func needJob(t *testing.T, n int, set ...string) (cfg *job.Config, users, items int) {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.3, 20, 1<<40)
	var b strings.Builder
	b.WriteString("user,item,click\n")
	seen := [2]map[uint64]bool{{}, {}}
	for range n {
		user, item := zipf.Uint64(), rng.Uint64N(50)
		seen[0][user], seen[1][item] = true, true
		fmt.Fprintf(&b, "%d,%d,%d\n", user, item, rng.IntN(2))
	}
	if err := os.WriteFile(filepath.Join(dir, "rows.csv"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
version: 1
name: x
dir: ` + dir + `/run
source: {text: {files: [` + dir + `/rows.csv]}}
parse:
  format: csv
  header: true
  features: [{name: user, slot: 1}, {name: again, column: user, slot: 1}, {name: item, slot: 2, table: small}]
  label: click
model: {fm: {dim: 8}}
`
	if cfg, err := job.Decode([]byte(text), "x.yaml", job.LoadOptions{Set: set}); err == nil {
		return cfg, len(seen[0]), len(seen[1])
	} else {
		t.Fatal(err)
	}
	return nil, 0, 0
}

func TestNeedOfTables(t *testing.T) {
	t.Parallel()
	cfg, users, items := needJob(t, 20_000)
	m, err := job.BuildModel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]int64{}
	for _, tbl := range m.Layout().Tables {
		row[tbl.Name] = tbl.RowBytes()
	}
	if len(row) != 2 {
		t.Fatalf("tables %v", row)
	}
	memory := table.NewMemory(table.MemoryOptions{Limit: 1 << 20, Of: "a small machine"})
	for _, tc := range []struct {
		name        string
		set         []string
		o           job.NeedOptions
		users, item int64 // rows
		basis       string
		unknown     bool
		warned      string
	}{
		{name: "nothing is known", users: -1, item: -1, unknown: true},
		{name: "all are named", o: job.NeedOptions{IDs: map[string]int64{"user": 1000, "again": 900, "item": 50}}, users: 1000, item: 50, basis: "--ids"},
		{name: "one is named", o: job.NeedOptions{IDs: map[string]int64{"user": 1000}}, users: 1000, item: -1, basis: "without 1 features", unknown: true},
		{name: "a limit", set: []string{"retention.table_memory=2MiB"}, users: 2 << 20 / row["embedding"], item: 2 << 20 / row["small"], basis: "retention.table_memory", warned: "a small machine"},
		{name: "a limit above what there is", set: []string{"retention.table_memory=2MiB"}, o: job.NeedOptions{Sample: 1 << 20}, users: int64(users), item: int64(items), basis: "counted in all 20000 examples"},
		{name: "all are counted", o: job.NeedOptions{Sample: 1 << 20}, users: int64(users), item: int64(items), basis: "counted in all 20000 examples"},
		{name: "too many", o: job.NeedOptions{IDs: map[string]int64{"user": 1 << 20, "again": 1, "item": 1}}, users: 1 << 20, item: 1, basis: "--ids", warned: "a small machine"},
		{name: "too many for ps.memory", set: []string{"ps.memory=1MiB"}, o: job.NeedOptions{IDs: map[string]int64{"user": 1 << 20, "again": 1, "item": 1}}, users: 1 << 20, item: 1, basis: "--ids", warned: "(ps.memory)"},
		{name: "a batch too large", set: []string{"train.batch=65536", "model={deepfm: {dim: 8, hidden: [64]}}"}, users: -1, item: -1, unknown: true, warned: "smaller train.batch"},
		{
			name: "layers above a message", set: []string{"ps={addresses: [127.0.0.1:1], max_message: 64KiB}", "model={deepfm: {dim: 8, hidden: [400, 24]}}", "train.batch=16"},
			users: -1, item: -1, unknown: true, warned: "ps.max_message is 65536",
		},
		{
			name: "layers in parts below it", set: []string{"ps={addresses: [127.0.0.1:1, 127.0.0.1:2], max_message: 64KiB}", "model={deepfm: {dim: 8, hidden: [400, 24]}}", "train.batch=16"},
			users: -1, item: -1, unknown: true,
		},
		{
			name: "shards of their own", set: []string{"ps.addresses=[127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4]"},
			o: job.NeedOptions{IDs: map[string]int64{"user": 16_000, "again": 1, "item": 1}}, users: 16_000, item: 1, basis: "--ids",
		},
	} {
		cfg, _, _ := needJob(t, 20_000, tc.set...)
		tc.o.Memory = memory
		got, err := job.Need(t.Context(), cfg, tc.o)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		bytes := max(tc.users, 0)*row["embedding"] + max(tc.item, 0)*row["small"]
		for _, tbl := range got.Tables {
			want := tc.users
			if tbl.Name == "small" {
				want = tc.item
			}
			if tbl.RowBytes != row[tbl.Name] || tbl.Rows != want || tbl.Bytes != max(want, 0)*tbl.RowBytes || tbl.Rows >= 0 && !strings.Contains(tbl.Basis, tc.basis) {
				t.Errorf("%s: got %+v, want %d rows", tc.name, tbl, want)
			}
		}
		process := bytes
		if cfg.PS.Remote() {
			process = (bytes + 3) / 4
		}
		if got.Bytes != bytes || got.Process != process || got.Unknown != tc.unknown || !strings.Contains(got.Warning, tc.warned) || (got.Warning == "") != (tc.warned == "") {
			t.Errorf("%s: got %+v, want %d bytes", tc.name, got, bytes)
		}
	}
	_, err = job.Need(t.Context(), cfg, job.NeedOptions{IDs: map[string]int64{"usre": 1}})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `did you mean "user"`) {
		t.Errorf("a name that is no feature: %v", err)
	}
}

// TestNeedIsEstimated: from a twentieth of the examples the ids of all are told within a quarter, and the basis is said; a sample alone is what it is.
func TestNeedIsEstimated(t *testing.T) {
	t.Parallel()
	const n = 200_000
	cfg, users, items := needJob(t, n)
	got, err := job.Need(t.Context(), cfg, job.NeedOptions{Sample: n / 20, Examples: n})
	if err != nil {
		t.Fatal(err)
	}
	for _, tbl := range got.Tables {
		want := users
		if tbl.Name == "small" {
			want = items
		}
		if ratio := float64(tbl.Rows) / float64(want); math.Abs(ratio-1) > .25 {
			t.Errorf("%s: %d rows were estimated (%s), there are %d", tbl.Name, tbl.Rows, tbl.Basis, want)
		}
		if !strings.Contains(tbl.Basis, "estimate: ") || !strings.Contains(tbl.Basis, "for 200000") {
			t.Errorf("%s: basis %q", tbl.Name, tbl.Basis)
		}
	}
	if got.Sampled < n/20 || got.Sampled > n/10 || got.Examples != n {
		t.Errorf("got %+v", got)
	}
	if got, err = job.Need(t.Context(), cfg, job.NeedOptions{Sample: n / 20}); err != nil || !strings.Contains(got.Tables[0].Basis, "--examples says how many") || got.Tables[0].Rows >= int64(users) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestNeedHasFilters: what counts ids without a row takes memory beside the rows.
func TestNeedHasFilters(t *testing.T) {
	t.Parallel()
	cfg, _, _ := needJob(t, 100, "retention.occurrences=2", "retention.admission=hash_filter", "retention.filter_capacity=4096000", "train.prefetch.lookup=0", "train.prefetch.push=0")
	got, err := job.Need(t.Context(), cfg, job.NeedOptions{IDs: map[string]int64{"user": 1, "again": 1, "item": 1}})
	if err != nil {
		t.Fatal(err)
	}
	const filter = 4096 * 2 * 1504 // 1000 ids a range, three cells for two and one more, in eights
	want := int64(0)
	for _, tbl := range got.Tables {
		if want += tbl.Bytes + filter; tbl.Filter != filter {
			t.Errorf("table %s: a filter of %d bytes, want %d", tbl.Name, tbl.Filter, filter)
		}
	}
	if got.Bytes != want {
		t.Errorf("%d bytes, want %d", got.Bytes, want)
	}
}

// TestTrainingWarnsOfMemory: layers and batches that do not fit are said before they are made.
func TestTrainingWarnsOfMemory(t *testing.T) {
	t.Parallel()
	for batch, warned := range map[string]bool{"65536": true, "64": false} {
		cfg, _, _ := needJob(t, 500, "train.batch="+batch, "model={deepfm: {dim: 8, hidden: [64]}}")
		var log bytes.Buffer
		memory := table.NewMemory(table.MemoryOptions{Limit: 4 << 20, Of: "a small machine"})
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{Memory: memory, Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "layers and batches do not fit"); got != warned {
			t.Errorf("batches of %s: warned %v\n%s", batch, got, log.String())
		}
	}
}
