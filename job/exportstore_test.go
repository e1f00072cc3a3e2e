package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed/realhdfs"
	"github.com/monolith-go/monolith/internal/testbed/reals3"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

func fileURL(dir string) string { return "file://" + filepath.ToSlash(dir) }

// TestExportToAStore: what is uploaded is what is written to a folder; a run that was cut short is continued, and another export or somebody's files are refused.
func TestExportToAStore(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	for _, format := range job.ExportFormats() {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "models")
			o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: filepath.Join(t.TempDir(), "exports"), RowsPerFile: 300}
			here, err := job.ExportModel(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			want := contents(t, here.Dir)
			o.Dir, o.Spool = fileURL(root), filepath.Join(t.TempDir(), "spool")
			drained := o
			drain := make(chan struct{})
			close(drain)
			drained.Drain = drain
			if r, err := job.ExportModel(t.Context(), drained); err != nil || !r.Drained {
				t.Errorf("drained: %+v, %v", r, err)
			}
			if _, err := os.Stat(filepath.Join(root, "1", "_export.json")); err == nil {
				t.Error("a run that was drained is complete")
			}
			// A run that was killed has left a file that is whole, one that the disk has damaged since, and one of other options.
			var names []string
			for name := range want {
				if name != "/_export.json" {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			first := want[names[0]]
			left := map[string]string{"/left/over": "x", names[0]: first}
			if last := names[len(names)-1]; last != names[0] {
				left[last] = strings.Repeat("x", len(want[last]))
			}
			for name, text := range left {
				name = filepath.Join(root, "1", name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			kept, err := os.Stat(filepath.Join(root, "1", names[0]))
			if err != nil {
				t.Fatal(err)
			}
			var told job.Status
			o.Status = func(s job.Status) { told = s }
			r, err := job.ExportModel(t.Context(), o)
			if err != nil || r.Dir != o.Dir+"/1" || r.Already || r.Rows != here.Rows || !strings.HasPrefix(r.Tables[0].Dir, r.Dir) {
				t.Fatalf("%+v, %v", r, err)
			}
			if diff := cmp.Diff(want, contents(t, filepath.Join(root, "1"))); diff != "" {
				t.Errorf("in the store (-here +there):\n%.2000s", diff)
			}
			if now, err := os.Stat(filepath.Join(root, "1", names[0])); err != nil || !now.ModTime().Equal(kept.ModTime()) {
				t.Errorf("a file that was there is uploaded again: %v", err)
			}
			if told.Phase != "upload" || !told.Bytes || told.Examples != told.Total || told.Total == 0 {
				t.Errorf("%+v", told)
			}
			if left := contents(t, o.Spool); len(left) != 1 { // the lock
				t.Errorf("%d files are left on this machine", len(left))
			}
			list, err := os.ReadFile(filepath.Join(root, "ExportSaverListenerState"))
			if err != nil || string(list) != fmt.Sprintf("entries {\n  export_dir: \"%s/1\"\n  global_step: 1\n}\n", o.Dir) {
				t.Errorf("the list is %s, %v", list, err)
			}
			if again, err := job.ExportModel(t.Context(), o); err != nil || !again.Already || again.Dir != r.Dir {
				t.Errorf("again: %+v, %v", again, err)
			}
			other := o
			if other.Format = "native"; format == "native" {
				other.Format = "onnx"
			}
			if _, err := job.ExportModel(t.Context(), other); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), r.Dir+" has another export") {
				t.Errorf("another format: %v", err)
			}
		})
	}
	o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Spool: t.TempDir()}
	for name, c := range map[string]struct{ dir, runner, want string }{
		"scheme": {"ftp://x/y", "", "possible are s3://"},
		"secret": {"s3://u:p@x/y", "", "has credentials in it"},
		"runner": {"s3://bucket/x", "prism", "--runner=local"},
	} {
		o := o
		o.Dir, o.Runner, o.Recipes = c.dir, c.runner, &job.Recipes{}
		o.Runners = map[string]job.Runner{"prism": nil}
		if c.runner != "" {
			o.Runners[c.runner] = func(context.Context, job.Submission) (pipeline.RunStats, error) { return pipeline.RunStats{}, nil }
		}
		if _, err := job.ExportModel(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", name, err)
		}
	}
	taken := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(taken, "1"), 0o755), os.WriteFile(filepath.Join(taken, "1", "x"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	o.Dir = fileURL(taken)
	if _, err := job.ExportModel(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("somebody's files: %v", err)
	}
}

// TestStoredExportsThatStay: as of exports in a folder; half of one that is removed is not taken for all.
func TestStoredExportsThatStay(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	root := t.TempDir()
	for _, name := range []string{"3/_export.json", "4/_export.json", "4/manifest.json", "4/users/a.slab", "5/_export.json", "6/_export.json", "007/_export.json", "2/x"} {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("{}"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	url := fileURL(root)
	r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: url, Spool: t.TempDir(), Keep: 2, Exempt: []uint64{3}})
	if err != nil || !slices.Equal(r.Removed, []string{url + "/4"}) {
		t.Errorf("%+v, %v", r, err)
	}
	entries, err := os.ReadDir(root)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"007", "1", "2", "3", "5", "6", "ExportSaverListenerState"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("what stays is %v, want %v; %v", names, want, err)
	}
}

// fromStore exports a job's snapshot to a URL, verifies, predicts with and serves what lies there, and returns what a request is answered.
func fromStore(t *testing.T, w *predictWorld, url string, down func() (up func())) {
	t.Helper()
	want, _ := w.evaluated()
	o := job.ExportModelOptions{Snapshot: w.path("run"), Format: "native", Dir: url, Spool: filepath.Join(t.TempDir(), "spool")}
	if _, err := job.ExportModel(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	cache := job.ExportCache{Dir: filepath.Join(t.TempDir(), "cache")}
	var said []string
	var told job.Status
	f := job.FetchExportOptions{URL: url, Cache: cache, Notice: func(text string) { said = append(said, text) }, Status: func(s job.Status) { told = s }}
	got, err := job.FetchExport(t.Context(), f)
	if err != nil || got.URL != url+"/1" || len(said) != 2 || !strings.Contains(said[0], got.URL) || told.Phase != "fetch" || told.Examples != told.Total || told.Total == 0 {
		t.Fatalf("%+v, %v, %q, %+v", got, err, said, told)
	}
	if v, err := job.VerifyExport(t.Context(), got.Dir); err != nil || len(v.Faults) > 0 || v.Rows == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	said = nil
	if again, err := job.FetchExport(t.Context(), f); err != nil || *again != *got || len(said) > 0 {
		t.Errorf("again: %+v, %v, %q", again, err, said)
	}
	cfg, err := job.Alone(t.Context(), got.Dir, w.path("new-*.csv"), job.LoadOptions{Set: []string{fmt.Sprintf("predict.to={jsonl: %q}", w.path("stored")), predictFields}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Predict(t.Context(), cfg, job.PredictOptions{Alone: got.Dir, Workers: 2}); err != nil {
		t.Fatal(err)
	}
	w.check("of the store", w.predictions("jsonl", w.path("stored")), want, false)

	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	serve := func() (addr string) {
		go func() {
			done <- job.ServeModels(t.Context(), job.ServeModelsOptions{
				Exports: []string{"clicks=" + url}, Cache: cache, Poll: 20 * time.Millisecond, HTTP: "127.0.0.1:0", Ready: func(addr, _ string) { ready <- addr }, Drain: drain,
			})
		}()
		select {
		case addr = <-ready:
		case err := <-done:
			t.Fatal(err)
		}
		return addr
	}
	addr := serve()
	get := func(path, body string) (int, string) {
		t.Helper()
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		if err := errors.Join(err, a.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(b)
	}
	ask := func() {
		t.Helper()
		user, item, price, _ := clickRow(10_000)
		var got struct{ Predictions [][]float32 }
		code, body := get("/v1/models/clicks:predict", fmt.Sprintf(`{"instances": [{"user": %q, "item": "%d", "price": %g}]}`, user, item, price))
		if err := json.Unmarshal([]byte(body), &got); code != http.StatusOK || err != nil || got.Predictions[0][0] != want[0] {
			t.Errorf("%d: %s, want %v; %v", code, body, want[0], err)
		}
	}
	ask()
	until := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, body := get("/v1/models/clicks", "")
			if strings.Contains(body, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s in %s", want, body)
			}
		}
	}
	// The store goes, and comes back with a newer export.
	up := down()
	ask()
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
	drain = make(chan struct{})
	addr = serve() // of what was copied
	ask()
	up()
	w.write("train-1.csv", 4000, 64, true)
	if _, err := job.Run(t.Context(), w.config(), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	seen, err := job.InspectSnapshot(t.Context(), w.path("run"))
	if err != nil || seen.ID < 2 {
		t.Fatalf("%+v, %v", seen, err)
	}
	if _, err := job.ExportModel(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	until(fmt.Sprintf(`"version":"%d","state":"AVAILABLE"`, seen.ID))
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestExportsInAStore(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	root := w.path("models")
	fromStore(t, w, fileURL(root), func() func() {
		move := func(from, to string) {
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
			}
		}
		move(root, root+".away")
		return func() { move(root+".away", root) }
	})
	for name, c := range map[string]struct{ url, want string }{
		"no folder":   {fileURL(w.path("nowhere")), "there is no complete native export at file://"},
		"no exports":  {fileURL(w.dir), "there is no complete native export at file://"},
		"snapshots":   {fileURL(w.path("run/snapshots")), "has snapshots and no exports; export one (monolith export"},
		"a snapshot":  {fileURL(w.path("run/snapshots/snap-00000001")), "is a snapshot; export it"},
		"typo":        {"s4://models/click", "possible are s3://"},
		"credentials": {"s3://me:secret@models/click", "has credentials in it"},
	} {
		_, err := job.FetchExport(t.Context(), job.FetchExportOptions{URL: c.url, Cache: job.ExportCache{Dir: t.TempDir()}})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		err = job.ServeModels(t.Context(), job.ServeModelsOptions{Exports: []string{"x=" + c.url}, Cache: job.ExportCache{Dir: t.TempDir()}, HTTP: "127.0.0.1:0"})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("served, %s: %v", name, err)
		}
	}
}

// TestCacheOfExports: copies that were asked for longest ago make room, and what is larger than all room is refused before it is copied.
func TestCacheOfExports(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	cache := job.ExportCache{Dir: t.TempDir()}
	var urls []string
	var size int64
	for i := range 3 {
		root := t.TempDir()
		urls = append(urls, fileURL(filepath.Join(root, fmt.Sprint("m", i))))
		r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: filepath.Join(root, fmt.Sprint("m", i)), RowsPerFile: 500})
		if err != nil {
			t.Fatal(err)
		}
		size = 0
		for _, text := range contents(t, r.Dir) {
			size += int64(len(text))
		}
	}
	fetch := func(i int) (string, error) {
		got, err := job.FetchExport(t.Context(), job.FetchExportOptions{URL: urls[i], Cache: cache})
		if err != nil {
			return "", err
		}
		return got.Dir, nil
	}
	cache.MaxBytes = size / 2
	if _, err := fetch(0); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), "--cache-bytes") || len(contents(t, cache.Dir)) != 1 {
		t.Errorf("larger than the cache: %v", err)
	}
	cache.MaxBytes = 2*size + size/2
	var dirs []string
	for _, i := range []int{0, 1, 0, 2} { // 1 was asked for longest ago
		dir, err := fetch(i)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		past := time.Now().Add(time.Duration(len(dirs)-10) * time.Hour) // clocks of file systems are coarse
		if err := os.Chtimes(dir, past, past); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false, true, true} {
		if _, err := os.Stat(dirs[i]); (err == nil) != want {
			t.Errorf("fetch %d: %v", i, err)
		}
	}
}

// TestExportsInS3 and TestExportsInHDFS do the same with a real server, which is killed meanwhile.
func TestExportsInS3(t *testing.T) {
	if testing.Short() {
		t.Skip("a real server")
	}
	server := reals3.Start(t)
	for name, value := range server.Environment() {
		t.Setenv(name, value)
	}
	fromStore(t, newPredictWorld(t), "s3://"+reals3.Bucket+"/models/click", func() func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		return func() {
			if err := server.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestExportsInHDFS(t *testing.T) {
	if testing.Short() {
		t.Skip("a real cluster takes half a minute")
	}
	fromStore(t, newPredictWorld(t), "hdfs://"+realhdfs.Start(t).Addr+"/models/click", func() func() { return func() {} })
}
