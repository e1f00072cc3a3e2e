package serving_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/serving"
)

// linked puts an export under another number of another folder.
func linked(t testing.TB, export, dir string, number int) string {
	t.Helper()
	to := filepath.Join(dir, fmt.Sprint(number))
	partial := to + ".partial"
	if err := errors.Join(os.CopyFS(partial, os.DirFS(export)), os.Rename(partial, to)); err != nil {
		t.Fatal(err)
	}
	return to
}

// states are the versions of a model with what they do.
func states(t testing.TB, m *serving.Models, name string) string {
	t.Helper()
	list, err := m.Status(name, serving.Which{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range list {
		out = append(out, fmt.Sprintf("%d %s", v.Version, v.State))
	}
	return strings.Join(out, ", ")
}

// TestAnotherFolder: a model that gets another folder is served from there, also where the versions have the same numbers, without a request that fails. Where nothing of the other can
// be opened what was served stays, the status says why, and the log once.
func TestAnotherFolder(t *testing.T) {
	t.Parallel()
	a, b := train(t, "{lr: {}}", ""), train(t, "{fm: {dim: 4}}", "")
	dirA, dirB, broken, gone := t.TempDir(), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "gone")
	linked(t, a.export(t), dirA, 1)
	linked(t, b.export(t), dirB, 1)
	if err := os.WriteFile(filepath.Join(linked(t, a.export(t), broken, 1), "dense.f32"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(m.Close)
	h := serving.NewServer(serving.Options{Models: m, Threads: 2, PinThreads: true}).Handler(nil)
	body := instances(t, a.asked[:5])
	from := func(dir string) string {
		t.Helper()
		err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir}})
		if bad := dir == broken || dir == gone; bad != (err != nil) || bad && !strings.HasSuffix(err.Error(), "what was served before stays") {
			t.Fatal(err)
		}
		code, answer := ask(t, h, "/v1/models/clicks:predict", body)
		if code != http.StatusOK {
			t.Fatal(code, answer)
		}
		return answer
	}
	ofA, ofB := from(dirA), from(dirB)
	if ofA == ofB || from(dirA) != ofA || from(dirB) != ofB {
		t.Fatal("the folder makes no difference")
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				if code, answer := ask(t, h, "/v1/models/clicks:predict", body); code != http.StatusOK || answer != ofA && answer != ofB {
					t.Errorf("%d %s", code, answer)
					return
				}
			}
		})
	}
	for range 8 {
		if from(dirA) != ofA || from(dirB) != ofB {
			t.Error("the folder makes no difference under load")
		}
	}
	stop.Store(true)
	wg.Wait()
	if got := states(t, m, "clicks"); got != "1 AVAILABLE" {
		t.Errorf("versions are %s", got)
	}
	for dir, want := range map[string]string{broken: "the export is damaged", gone: "no such file"} {
		if got := from(dir); got != ofB {
			t.Errorf("%s: %s", dir, got)
		}
		for range 3 {
			if err := m.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("the log has %q %d times:\n%s", want, got, log.String())
		}
		list, err := m.Status("clicks", serving.Which{})
		if err != nil || len(list) != 1 || list[0].State != serving.Available || (list[0].Err != nil) != (dir == broken) {
			t.Errorf("%s: %+v, %v", dir, list, err)
		}
		if got := from(dirB); got != ofB {
			t.Error(got)
		}
		if list, err = m.Status("clicks", serving.Which{}); err != nil || list[0].Err != nil {
			t.Errorf("back in its folder: %+v, %v", list, err)
		}
	}
	if got := from(dirA); got != ofA {
		t.Error(got)
	}
}

// TestShortenedInPlace: a version whose files lose their ends while it is served is not served any more, by its state, health and requests, and an older one is in its place where there is
// one; when the files are whole again it is back, without another manifest. A file that another takes the place of is mapped as it was.
func TestShortenedInPlace(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	dir := t.TempDir()
	export := linked(t, tr.export(t), dir, 2)
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: dir})
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	body := instances(t, tr.asked[:20])
	expect := func(what, want string, ready bool) {
		t.Helper()
		err := m.Refresh(t.Context())
		if got := states(t, m, "clicks"); got != want || m.Ready() != ready || (err == nil) != ready {
			t.Errorf("%s: versions are %s, ready: %v, %v; want %s", what, got, m.Ready(), err, want)
		}
		code, answer := ask(t, h, "/v1/models/clicks:predict", body)
		if !ready && code != http.StatusServiceUnavailable || ready && (code != http.StatusOK || !slices.Equal(predictions(t, answer)[""], tr.want["prediction"][:20])) {
			t.Errorf("%s: %d %s", what, code, answer)
		}
		if code, _ := ask(t, h, "/healthz", ""); (code == http.StatusOK) != ready {
			t.Errorf("%s: health is %d", what, code)
		}
	}
	slabs, err := filepath.Glob(filepath.Join(export, "*", "*.slab"))
	if err != nil || len(slabs) == 0 {
		t.Fatal(slabs, err)
	}
	whole := map[string][]byte{}
	for _, s := range slabs {
		if whole[s], err = os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	shorten := func() {
		t.Helper()
		for _, s := range slabs {
			if err := os.Truncate(s, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	mend := func() {
		t.Helper()
		for s, b := range whole {
			if err := os.WriteFile(s, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("whole", "2 AVAILABLE", true)
	shorten()
	expect("shortened", "2 END", false)
	list, err := m.Status("clicks", serving.Which{})
	if err != nil || !errors.Is(list[0].Err, native.ErrCorrupt) || !strings.Contains(list[0].Err.Error(), ".slab: 0 bytes of ") {
		t.Errorf("%+v, %v", list, err)
	}
	expect("still shortened", "2 END", false)
	mend()
	expect("whole again", "2 AVAILABLE", true)
	linked(t, tr.export(t), dir, 1)
	shorten()
	expect("shortened beside another", "2 END, 1 AVAILABLE", true)
	mend()
	expect("whole again beside another", "2 AVAILABLE, 1 END", true)
	for _, s := range slabs {
		if err := errors.Join(os.WriteFile(s+".new", []byte("short"), 0o600), os.Rename(s+".new", s)); err != nil {
			t.Fatal(err)
		}
	}
	expect("replaced", "2 AVAILABLE, 1 END", true)
}

// TestWrittenInPlace: a version whose files get other bytes of the same number in their place, or whose disk did not give back a row, is not served until all of it is what was exported, and
// then without anybody's doing. One that was written again as it was is served all the while.
func TestWrittenInPlace(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	dir := t.TempDir()
	export := linked(t, tr.export(t), dir, 2)
	var log bytes.Buffer
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir}}); err != nil {
		t.Fatal(err)
	}
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	body := instances(t, tr.asked[:20])
	slabs, err := filepath.Glob(filepath.Join(export, "*", "*.slab"))
	if err != nil || len(slabs) == 0 {
		t.Fatal(slabs, err)
	}
	slab := slabs[0]
	whole, err := os.ReadFile(slab)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(whole)
	clear(other[64 : len(other)/4]) // weights; how it ends is as it was
	// put writes the file in its place, as of a time.
	put := func(b []byte, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(slab, b, 0o600), os.Chtimes(slab, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what, want string) {
		t.Helper()
		_ = m.Refresh(t.Context()) // the state says it
		if got := states(t, m, "clicks"); got != want {
			t.Errorf("%s: versions are %s, want %s\n%s", what, got, want, log.String())
		}
		code, answer := ask(t, h, "/v1/models/clicks:predict", body)
		if want == "2 END" && code != http.StatusServiceUnavailable || want != "2 END" && (code != http.StatusOK || !slices.Equal(predictions(t, answer)[""], tr.want["prediction"][:20])) {
			t.Errorf("%s: %d %s", what, code, answer)
		}
	}
	info, err := os.Stat(slab)
	if err != nil {
		t.Fatal(err)
	}
	was, at := info.ModTime(), info.ModTime().Add(time.Hour)
	expect("as exported", "2 AVAILABLE")
	put(whole, at)
	expect("the same again", "2 AVAILABLE")
	if strings.Contains(log.String(), "any more") {
		t.Errorf("it was closed:\n%s", log.String())
	}
	put(other, was)
	expect("other bytes", "2 END")
	expect("other bytes still", "2 END")
	list, err := m.Status("clicks", serving.Which{})
	if err != nil || !errors.Is(list[0].Err, native.ErrCorrupt) || !strings.Contains(list[0].Err.Error(), "have the checksum") {
		t.Errorf("%+v, %v", list, err)
	}
	if n := strings.Count(log.String(), "cannot be served"); n != 1 {
		t.Errorf("the log says %d times that it cannot be served:\n%s", n, log.String())
	}
	put(whole, at)
	expect("whole again", "2 AVAILABLE")

	// What a lookup met is remembered, whatever the file looks like afterwards.
	lose := func(then []byte) {
		t.Helper()
		if err := os.Truncate(slab, 0); err != nil {
			t.Fatal(err)
		}
		if code, answer := ask(t, h, "/v1/models/clicks:predict", body); code == http.StatusOK {
			t.Fatal(answer)
		}
		put(then, at)
	}
	lose(whole)
	expect("lost for a moment", "2 AVAILABLE")
	lose(other)
	expect("lost", "2 END")
	put(whole, at) // no file looks newer: it is tried all the same
	for states(t, m, "clicks") != "2 AVAILABLE" {
		if err := context.Cause(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = m.Refresh(t.Context()) // the state says it
	}
	expect("there again", "2 AVAILABLE")
	if n := strings.Count(log.String(), "the disk does not give back what is mapped"); n != 2 {
		t.Errorf("the log says %d times that a row was lost:\n%s", n, log.String())
	}
}

// TestSwitchUnderLoad: while versions come and go under load, every request is answered with the right predictions, by a version that was served when it came; what was replaced is closed.
func TestSwitchUnderLoad(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	export := filepath.Join(tr.exports, filepath.Base(tr.export(t)))
	dir := t.TempDir()
	linked(t, export, dir, 1)
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: dir})
	h := serving.NewServer(serving.Options{Models: m, Threads: 3}).Handler(nil)
	body := instances(t, tr.asked[:20])
	var stop atomic.Bool
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				code, got := ask(t, h, "/v1/models/clicks:predict", body)
				if code != http.StatusOK || !slices.Equal(predictions(t, got)[""], tr.want["prediction"][:20]) {
					t.Errorf("%d: %s", code, got)
					return
				}
				answered.Add(1)
			}
		})
	}
	for number := 2; number < 12; number++ {
		linked(t, export, dir, number)
		if err := m.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		for was := answered.Load(); answered.Load() < was+8 && !t.Failed(); { // some in each version's time
			ask(t, h, "/v1/models/clicks", "")
		}
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint(number-1))); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := m.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if got := states(t, m, "clicks"); got != "11 AVAILABLE" {
		t.Errorf("versions are %s", got)
	}
}

// TestMemoryIsFlat switches between versions, and asks each, and compares what lives in memory, what is mapped and which files are open after a tenth of the switches and after all of them. It is not
// parallel, so that nothing else of this process lives meanwhile.
func TestMemoryIsFlat(t *testing.T) { //nolint:paralleltest // it measures this process
	switches, asked := 1000, 36
	switch {
	case testbed.Required("memory"):
		switches = 10_000 // with as many requests as an hour of a hundred a second has
	case testing.Short():
		switches = 100
	}
	tr := train(t, "{fm: {dim: 4}}", "")
	export := filepath.Join(tr.exports, filepath.Base(tr.export(t)))
	dir := t.TempDir()
	linked(t, export, dir, 1)
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe}) // without a log, which tests keep
	defer m.Close()
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir}}); err != nil {
		t.Fatal(err)
	}
	h := serving.NewServer(serving.Options{Models: m, Threads: 2}).Handler(nil)
	body := instances(t, tr.asked[:20])
	type use struct{ heap, mapped, files int }
	now := func() (u use) {
		runtime.GC()
		runtime.GC() // what pools keep is gone after two
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		u.heap = int(s.HeapAlloc)
		if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
			u.mapped = bytes.Count(maps, []byte(dir))
		}
		if files, err := os.ReadDir("/proc/self/fd"); err == nil {
			u.files = len(files)
		}
		return u
	}
	var before use
	for number := 2; number < 2+switches; number++ {
		linked(t, export, dir, number)
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint(number-1))); err != nil {
			t.Fatal(err)
		}
		for range asked {
			if code, got := ask(t, h, "/v1/models/clicks:predict", body); code != http.StatusOK {
				t.Fatalf("version %d: %d: %s", number, code, got)
			}
		}
		if number == 1+switches/10 {
			before = now()
		}
	}
	after := now()
	t.Logf("%d switches, %d requests: %+v after a tenth, %+v at the end", switches, switches*asked, before, after)
	if after.heap > before.heap+32<<10 || after.mapped > before.mapped || after.files > before.files {
		t.Errorf("%+v after %d switches, %+v after %d", before, switches/10, after, switches)
	}
	if got := states(t, m, "clicks"); !strings.HasPrefix(got, fmt.Sprintf("%d AVAILABLE", switches+1)) {
		t.Errorf("versions are %.200s", got)
	}
}

// TestVersions: policies choose among the versions that open; one that does not is refused with its reason, and what serves stays until others do.
func TestVersions(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	export, dir := tr.export(t), t.TempDir()
	for number := range 3 {
		linked(t, export, dir, number+1)
	}
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: dir, Labels: map[string]int64{"stable": 2}})
	expect := func(what, want string) {
		t.Helper()
		if got := states(t, m, "clicks"); got != want {
			t.Errorf("%s: versions are %s, want %s", what, got, want)
		}
	}
	configure := func(p serving.Policy) {
		t.Helper()
		if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir, Policy: p, Labels: map[string]int64{"stable": 2}}}); err != nil {
			t.Error(err)
		}
	}
	expect("the newest", "3 AVAILABLE")
	configure(serving.Policy{Latest: 2})
	expect("two", "3 AVAILABLE, 2 AVAILABLE")
	if _, number, done, err := m.Use("clicks", serving.Which{Label: "stable"}); err != nil || number != 2 {
		t.Errorf("the stable version is %d, %v", number, err)
	} else {
		configure(serving.Policy{Specific: []int64{1}})
		expect("one in use", "3 END, 2 UNLOADING, 1 AVAILABLE")
		done()
		done()
		expect("no longer in use", "3 END, 2 END, 1 AVAILABLE")
	}
	configure(serving.Policy{All: true})
	expect("all", "3 AVAILABLE, 2 AVAILABLE, 1 AVAILABLE")
	configure(serving.Policy{})

	// A version without a manifest is one that is being written; one that is damaged is refused.
	broken := linked(t, export, dir, 5)
	manifest := filepath.Join(broken, native.ManifestName)
	whole, err := os.ReadFile(manifest)
	if err := errors.Join(err, os.Remove(manifest)); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Errorf("with an unfinished version: %v", err)
	}
	expect("unfinished", "5 END, 3 AVAILABLE, 2 END, 1 END")
	if err := os.WriteFile(manifest, append([]byte(" "), whole[:len(whole)/2]...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Errorf("with a damaged version: %v", err)
	}
	list, err := m.Status("clicks", serving.Which{})
	if err != nil || !errors.Is(list[0].Err, native.ErrCorrupt) {
		t.Errorf("%+v, %v", list, err)
	}
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	if code, body := ask(t, h, "/v1/models/clicks", ""); code != http.StatusOK || !strings.Contains(body, native.ManifestName) || !strings.Contains(body, `"AVAILABLE"`) {
		t.Errorf("%d: %s", code, body)
	}
	if err := os.WriteFile(manifest, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	expect("whole", "5 AVAILABLE, 3 END, 2 END, 1 END")

	// The last good one stays when its folder goes.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:3])); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"][:3]) {
		t.Errorf("%d: %s", code, body)
	}
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "other", Dir: tr.exports}}); err != nil {
		t.Error(err)
	}
	if _, err := m.Status("clicks", serving.Which{}); status.Code(err) != codes.NotFound || !slices.Equal(m.Names(), []string{"other"}) {
		t.Errorf("%v of %q", err, m.Names())
	}
}

// TestVersionsOfAnotherModel: a version that is of another job, or has other inputs or outputs than the one that serves, is served and said; another one of the model is not.
func TestVersionsOfAnotherModel(t *testing.T) {
	t.Parallel()
	tr, wider := train(t, "{lr: {}}", ""), train(t, "{shared_bottom: {dim: 4}}", heads)
	books := *tr.cfg
	books.Name, books.Dir = "books", filepath.Join(t.TempDir(), "run")
	if _, err := job.Run(t.Context(), &books, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: books.Dir, Format: "native", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	linked(t, tr.export(t), dir, 1)
	var log bytes.Buffer
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir}}); err != nil {
		t.Fatal(err)
	}
	const another, shape = "of another job", "other inputs or outputs"
	for i, c := range []struct {
		export    string
		says, not []string
	}{
		{tr.export(t), nil, []string{another, shape}},
		{wider.export(t), []string{shape, `added="[head click of 1 head late of 1]" removed="[head label of 1]"`, "version=3", "serves=2"}, []string{another}},
		{other.Dir, []string{another, "job=books", "serves_job=clicks", shape, `added="[head label of 1]" removed="[head click of 1 head late of 1]"`}, nil},
		{other.Dir, nil, []string{another, shape}},
	} {
		log.Reset()
		linked(t, c.export, dir, i+2)
		if err := m.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		if got := states(t, m, "clicks"); got != fmt.Sprintf("%d AVAILABLE", i+2) && !strings.HasPrefix(got, fmt.Sprintf("%d AVAILABLE, ", i+2)) {
			t.Errorf("versions are %s", got)
		}
		for _, text := range c.says {
			if !strings.Contains(log.String(), text) {
				t.Errorf("version %d: no %q in %s", i+2, text, &log)
			}
		}
		for _, text := range c.not {
			if strings.Contains(log.String(), text) {
				t.Errorf("version %d: %q in %s", i+2, text, &log)
			}
		}
	}
}

// TestNothingToServe: what cannot be served at all is an error that says why.
func TestNothingToServe(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for name, c := range map[string]struct {
		configs []serving.ModelConfig
		says    string
	}{
		"an empty folder": {[]serving.ModelConfig{{Name: "a", Dir: empty}}, "model a: " + empty + " has no export"},
		"no folder":       {[]serving.ModelConfig{{Name: "a", Dir: filepath.Join(empty, "none")}}, "no such file"},
		"no name":         {[]serving.ModelConfig{{Dir: empty}}, "needs a name"},
		"two of a name":   {[]serving.ModelConfig{{Name: "a", Dir: empty}, {Name: "a", Dir: empty}}, `two models "a"`},
	} {
		m := serving.NewModels(serving.ModelsOptions{Recipe: recipe})
		if err := m.Configure(t.Context(), c.configs); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want one that says %q", name, err, c.says)
		}
		if h := serving.NewServer(serving.Options{Models: m}).Handler(nil); len(m.Names()) > 0 {
			if code, _ := ask(t, h, "/healthz", ""); code != http.StatusServiceUnavailable {
				t.Errorf("%s: /healthz is %d", name, code)
			}
		}
	}
}

// TestModelRemovedWhileItOpens: its version is closed again.
func TestModelRemovedWhileItOpens(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	tr.export(t)
	var log bytes.Buffer
	var m *serving.Models
	removed := make(chan error, 1)
	m = serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(&log, nil)), Loaded: func(string, time.Duration, error) {
		go func() { removed <- m.Configure(t.Context(), nil) }()
		for len(m.Names()) > 0 {
			time.Sleep(time.Millisecond)
		}
	}})
	t.Cleanup(m.Close)
	_ = m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}) // which has a version or none, by who comes first
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "no longer served") {
		t.Errorf("it stays open: %s", &log)
	}
}
