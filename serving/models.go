package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/serving/rows"
)

// Policy says which versions of a model are served. The zero value is the newest that opens.
type Policy struct {
	// Latest is how many of the newest that open are served; 0: 1.
	Latest int
	// All are all that open, whatever Latest is.
	All bool
	// Specific are those of these numbers, whatever Latest is.
	Specific []int64
}

// ModelConfig is a model to serve.
type ModelConfig struct {
	// Name is what requests call it.
	Name string
	// Dir is a native export, or a folder of exports by their numbers, which is watched.
	Dir string
	// Policy says which of the exports are served.
	Policy Policy
	// Labels are names of versions for requests, such as "stable".
	Labels map[string]int64
}

// State is what a version is doing, with the numbers of TensorFlow Serving (ModelVersionStatus.State).
type State int32

// The states of versions.
const (
	Loading   State = 20
	Available State = 30
	Unloading State = 40
	End       State = 50
)

// String is the name of the state.
func (s State) String() string {
	switch s {
	case Loading:
		return "LOADING"
	case Available:
		return "AVAILABLE"
	case Unloading:
		return "UNLOADING"
	case End:
		return "END"
	}
	return "UNKNOWN"
}

// VersionStatus is how a version of a model is.
type VersionStatus struct {
	Version int64
	State   State
	// Err is why it could not be opened.
	Err error
	// AsOf, of a version whose parameters change, is the moment before which everything that training did is read.
	AsOf time.Time
}

// ModelsOptions say what is served. The zero value works, for [SignatureFeatures] alone.
type ModelsOptions struct {
	// Recipe gives what a model's parse recipe says; nil: nothing is made of records, and requests have features as parsing makes them.
	Recipe Recipe
	// Rows, if not nil, is where the rows of exports are read. A version is served once all row shards have it.
	Rows *rows.Client
	// Part, if not nil, makes the server one of the row shards: it gives the rows of this part, and predicts nothing.
	Part *native.Part
	// Lease is how long a row shard keeps a version that its policy gives up behind the last time that somebody asked for it; 0: 30 s.
	Lease time.Duration
	// Push, if not nil, makes of an export what takes rows that are pushed ([SignatureAssign]). It is for exports without Rows; with Part, those of its rows that
	// are of the part are assigned.
	Push func(*native.Export) Pushable
	// Logger gets a line for each version that comes or goes, or cannot be opened; nil: nothing is logged.
	Logger *slog.Logger
	// VerifyRate is how many bytes of the files of versions are read a second to verify them while they serve; 0: 32 MiB.
	VerifyRate int
	// Verified is called when all files of a version were verified beside requests; whole is false where they are damaged. nil: nobody asks.
	Verified func(model string, whole bool)
	// Loaded is called when a version was opened, or could not be; nil: nobody asks.
	Loaded func(model string, took time.Duration, err error)
}

// Models are the models that are served, with those of their versions that are open. Methods may overlap.
type Models struct {
	o   ModelsOptions
	log *slog.Logger
	// cores are those of all versions.
	cores *cores

	reload sync.Mutex // one change of what is open at a time
	// first is set while models are opened for the first time, unlogged are the errors of versions until then; guarded by reload.
	first    bool
	unlogged []func()

	mu     sync.Mutex
	models map[string]*servable
	closed bool
}

// servable is a model with its versions.
type servable struct {
	config   ModelConfig
	versions map[int64]*held // that are or were open, or could not be opened
	faulty   string          // why nothing is found in its folder; the log has it

	// pushing is held while rows are assigned, and while a version takes the place of another. It is taken before the lock of Models.
	pushing sync.Mutex
}

// live reports whether its versions are put and not found in a folder.
func (s *servable) live() bool { return s.config.Dir == "" }

// Expect makes a name that of a model whose versions come with Put. Until there is one the model is not ready. Errors: INVALID_ARGUMENT for a name that is there already.
func (m *Models) Expect(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models[name] != nil {
		return invalid("there are two models %q", name)
	}
	m.models[name] = &servable{config: ModelConfig{Name: name}, versions: map[int64]*held{}}
	return nil
}

// Put makes a version the one that serves of a model that was expected, and belongs to the models from then on. The one before is closed when its last request has ended.
func (m *Models) Put(name string, number int64, v *Version) {
	v.cores = m.cores
	m.mu.Lock()
	s := m.models[name]
	var gone []*held
	for _, h := range s.versions {
		gone = append(gone, h)
	}
	put := &held{model: name, number: number, version: v, state: Available}
	s.versions[number] = put
	if m.closed {
		gone = append(gone, put)
	}
	m.mu.Unlock()
	for _, h := range gone {
		m.drop(h)
	}
}

// held is a version with who uses it. It is guarded by the lock of Models.
type held struct {
	model    string
	number   int64
	dir      string   // empty: it was put
	version  *Version // nil: it is not open
	state    State
	err      error // of one that serves: why that of another folder does not
	uses     int
	fresh    time.Time // when what could not be opened was written last
	other    string    // the folder of what could not be opened in its place
	asked    time.Time // when somebody asked for its rows last
	verified bool      // its files were read beside requests, and are whole
	damaged  error     // what is wrong with its files: another version takes its place
	suspect  bool      // its files were changed in their place or could not be read: all of it is verified before it serves
	retry    time.Time // when what could not be opened for another reason than what its files hold is tried again; zero: never
}

// retryAfter is how much longer than a failed attempt to open a version it takes until the next, so that a disk that does not answer is not read all the time.
const retryAfter = 10

// failed says that the version, or that of another folder in its place, could not be opened.
func (h *held) failed(err error, fresh time.Time, suspect bool, took time.Duration) {
	h.err, h.fresh, h.retry = err, fresh, time.Time{}
	if suspect || !fsx.Damage(err) { // nothing need be written for it to be otherwise the next time
		h.retry = time.Now().Add(retryAfter * took)
	}
}

// tried reports whether the error of the version is still so: no file was written since, and it is not time to try again.
func (h *held) tried(fresh time.Time) bool {
	return h.err != nil && h.fresh.Equal(fresh) && (h.retry.IsZero() || time.Now().Before(h.retry))
}

// waits reports whether the version could be opened, but for row shards that do not have it.
func (h *held) waits() bool { return h.state == Loading && h.err != nil }

// NewModels serves nothing until [Models.Configure].
func NewModels(o ModelsOptions) *Models {
	o.Lease, o.VerifyRate = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.VerifyRate, 32<<20)
	return &Models{o: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cores: newCores(), models: map[string]*servable{}}
}

// Configure makes these the models that are served, and opens what is there of them. Models that are no longer among them are closed when their last request has ended. Errors: all
// models of which nothing in their folder can be served, also where what was served before stays, but for those that wait for row shards, while the others are served; configurations that
// cannot be, in which case nothing is changed.
func (m *Models) Configure(ctx context.Context, models []ModelConfig) error {
	if err := checkConfigs(models); err != nil {
		return err
	}
	m.mu.Lock()
	named, first := map[string]bool{}, len(m.models) == 0
	for _, c := range models {
		if s := m.models[c.Name]; s != nil && s.live() {
			m.mu.Unlock()
			return invalid("model %q is that of a running job; call the one of folder %q otherwise", c.Name, c.Dir)
		}
	}
	for _, c := range models {
		named[c.Name] = true
		if s := m.models[c.Name]; s != nil {
			s.config = c
		} else {
			m.models[c.Name] = &servable{config: c, versions: map[int64]*held{}}
		}
	}
	var gone []*held
	for name, s := range m.models {
		if !named[name] && !s.live() {
			gone = slices.AppendSeq(gone, maps.Values(s.versions))
			delete(m.models, name)
		}
	}
	m.mu.Unlock()
	for _, h := range gone {
		m.drop(h)
	}
	return m.refreshAll(ctx, first, func(error) bool { return true })
}

// checkConfigs refuses what cannot be served.
func checkConfigs(models []ModelConfig) error {
	seen := map[string]bool{}
	for _, c := range models {
		switch {
		case c.Name == "" || c.Dir == "":
			return invalid("model %q of folder %q: needs a name and a folder", c.Name, c.Dir)
		case fsx.IsURL(c.Dir):
			return invalid("model %q: %q lies in a store; such folders are named when the server is started: monolith serve %s", c.Name, c.Dir, c.Dir)
		case seen[c.Name]:
			return invalid("there are two models %q", c.Name)
		case c.Policy.Latest < 0:
			return invalid("model %q: the newest %d versions cannot be served", c.Name, c.Policy.Latest)
		}
		seen[c.Name] = true
	}
	return nil
}

// Watch calls Refresh at intervals until ctx ends.
func (m *Models) Watch(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_ = m.Refresh(ctx) // each version's error is logged, and its state has it
		}
	}
}

// Refresh looks into the folders of the models, and opens and closes versions as their policies say: new ones are open before others go. Errors: all models that have no version
// to serve, but for those that wait for row shards.
func (m *Models) Refresh(ctx context.Context) error {
	return m.refreshAll(ctx, false, func(err error) bool {
		_, stays := errors.AsType[*staysError](err)
		return !stays
	})
}

// UnservedError has the models of which nothing can be served now, each with its reason. The others are served, and these as soon as they can be.
type UnservedError struct{ Models []error }

// Error implements error.
func (e *UnservedError) Error() string { return errors.Join(e.Models...).Error() }

// Unwrap gives the reasons.
func (e *UnservedError) Unwrap() []error { return e.Models }

// staysError says why nothing in the folder of a model can be served, where what was served before stays.
type staysError struct{ err error }

func (e *staysError) Error() string { return e.err.Error() + "; what was served before stays" }

func (e *staysError) Unwrap() error { return e.err }

// refreshAll is Refresh with those errors alone that matter. The first time it does not log what its error says where nothing is served.
func (m *Models) refreshAll(ctx context.Context, first bool, matters func(error) bool) error {
	m.reload.Lock()
	defer m.reload.Unlock()
	m.first = first
	defer func() {
		if m.first && m.Serves() {
			for _, log := range m.unlogged {
				log()
			}
		}
		m.first, m.unlogged = false, nil
	}()
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.models))
	m.mu.Unlock()
	var errs []error
	for _, s := range all {
		if s.live() {
			continue
		}
		if err := m.refresh(ctx, s); err != nil && matters(err) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &UnservedError{errs}
}

// Serves reports whether any model has a version that serves, or one that waits for row shards.
func (m *Models) Serves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.models {
		for _, h := range s.versions {
			if h.state == Available || h.waits() {
				return true
			}
		}
	}
	return false
}

// refresh brings one model up to date. Errors: [staysError], and why it has no version to serve.
func (m *Models) refresh(ctx context.Context, s *servable) error {
	m.mu.Lock()
	config := s.config
	m.mu.Unlock()
	there, err := versionsIn(config.Dir)
	if err != nil {
		err = fmt.Errorf("model %s: %w", config.Name, err)
	}
	m.dropChanged(ctx, s)
	wanted := map[int64]bool{}
	most := max(config.Policy.Latest, 1)
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(there))) {
		switch {
		case config.Policy.All, slices.Contains(config.Policy.Specific, number):
		case len(config.Policy.Specific) > 0, len(wanted) >= most:
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if m.load(ctx, s, config.Name, number, there[number]) {
			wanted[number] = true
		}
	}
	if len(there) == 0 {
		err = cmp.Or(err, fmt.Errorf("model %s: %s has no export: neither the file %s nor folders that are numbers; %w", config.Name, config.Dir, native.ManifestName, native.ErrNone))
	}
	m.mu.Lock()
	faulty, logged := "", s.faulty
	if len(there) == 0 {
		faulty = err.Error()
	}
	s.faulty = faulty
	var gone []*held
	served, opened, waits := 0, false, false
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(s.versions))) {
		h := s.versions[number]
		_, onDisk := there[number]
		switch {
		case h.state == Available && h.damaged != nil:
			h.err, h.suspect = h.damaged, true
			err = errors.Join(err, fmt.Errorf("model %s: version %d: %w", config.Name, number, h.err))
			gone = append(gone, h)
		case h.state == Available && (wanted[number] || len(wanted) == 0): // without others, the last good ones stay
			served++
			switch dir := there[number]; {
			case h.dir == dir:
				opened = true
			case h.other != dir || h.err == nil:
			case errors.Is(h.err, rows.ErrNotReady):
				waits = true
			default:
				err = errors.Join(err, fmt.Errorf("model %s: version %d: %w", config.Name, number, h.err))
			}
		case h.state == Available && time.Since(h.asked) < m.o.Lease: // somebody reads its rows
		case h.state == Available:
			gone = append(gone, h)
		case (h.state == End || h.waits()) && !onDisk:
			delete(s.versions, number)
		case h.waits():
			waits = true
		case h.state == End && h.err != nil:
			err = errors.Join(err, fmt.Errorf("model %s: version %d: %w", config.Name, number, h.err))
		}
	}
	m.mu.Unlock()
	for _, h := range gone {
		m.drop(h)
	}
	if served > 0 && faulty != "" && faulty != logged {
		m.log.Error("nothing is found in the folder of a model; what is open of it stays", "model", config.Name, "dir", config.Dir, "err", err)
	}
	if opened || waits {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("model %s: %s has no export that its policy serves; %w", config.Name, config.Dir, native.ErrNone))
	if served > 0 {
		return &staysError{err}
	}
	return err
}

// onDisk are parameters that are read from files while they are served.
type onDisk interface {
	// Changed is why they are not any more what they were when they were opened.
	Changed(ctx context.Context) error
	// Verify reads all of them and returns what is wrong with them.
	Verify(ctx context.Context) (faults []error, err error)
	// VerifyPaced is Verify that calls pace with how many bytes it reads next.
	VerifyPaced(ctx context.Context, pace func(bytes int) error) (faults []error, err error)
}

// dropChanged closes the versions whose files are not any more what was opened, or cannot be read: their requests fail or would get other rows. They are opened again when they are whole.
func (m *Models) dropChanged(ctx context.Context, s *servable) {
	m.mu.Lock()
	var open []*held
	for _, h := range s.versions {
		if h.state == Available {
			h.uses++ // to look at the disk without the lock
			open = append(open, h)
		}
	}
	m.mu.Unlock()
	for _, h := range open {
		if p, ok := h.version.params.(onDisk); ok {
			if err := p.Changed(ctx); err != nil && ctx.Err() == nil {
				m.log.Error("the files of a version are not any more what was opened; it is served again when they are", "model", h.model, "version", h.number, "err", err)
				m.mu.Lock()
				h.err, h.fresh, h.suspect = err, time.Time{}, true
				m.mu.Unlock()
				m.drop(h)
			}
		}
		m.release(h)
	}
}

// versionsIn finds the exports of a folder by their numbers: the folder itself, or those in it.
func versionsIn(dir string) (map[int64]string, error) {
	if _, err := os.Stat(filepath.Join(dir, native.ManifestName)); err == nil {
		number, err := strconv.ParseInt(filepath.Base(dir), 10, 64)
		if err != nil || number < 0 {
			number = 1
		}
		return map[int64]string{number: dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[int64]string{}
	for _, e := range entries {
		if number, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && number >= 0 {
			out[number] = filepath.Join(dir, e.Name())
		}
	}
	return out, nil
}

// load opens a version that is not open, answers its warm-up requests, and reports whether it serves. One that could not be opened is tried again when one of its files is another.
func (m *Models) load(ctx context.Context, s *servable, name string, number int64, dir string) bool {
	fresh := changed(dir)
	m.mu.Lock()
	h := s.versions[number]
	if h != nil && h.state == Available && h.dir == dir && h.damaged != nil {
		m.mu.Unlock()
		return false
	}
	if h != nil && h.state == Available && (h.dir == dir || h.other == dir && h.tried(fresh)) ||
		h != nil && h.state == End && h.dir == dir && h.tried(fresh) {
		serves := h.state == Available
		if serves && h.dir == dir { // the folder is this one again
			h.err, h.other = nil, ""
		}
		m.mu.Unlock()
		return serves
	}
	var waited error
	if h != nil && (h.waits() || h.state == Available && h.other == dir) {
		waited = h.err
	}
	var failed error // of the last attempt
	if h != nil && (h.state == End && h.dir == dir || h.other == dir) {
		failed = h.err
	}
	suspect := h != nil && h.dir == dir && h.suspect
	var before *held // of another folder under the same number, which serves until this one does
	if h != nil && h.state == Available {
		before = h
	}
	h = &held{model: name, number: number, dir: dir, state: Loading, fresh: fresh, err: waited, suspect: suspect}
	if before == nil {
		s.versions[number] = h
	}
	m.mu.Unlock()
	began := time.Now()
	v, warmed, err := m.open(ctx, name, number, dir, suspect)
	took := time.Since(began)
	if errors.Is(err, rows.ErrNotReady) {
		m.mu.Lock()
		if h.err = err; before != nil {
			before.err, before.other, before.fresh = err, dir, time.Time{} // it is tried again
		}
		m.mu.Unlock()
		if waited == nil || err.Error() != waited.Error() {
			m.log.Warn("a version waits for row shards", "model", name, "version", number, "err", err)
		}
		return before != nil
	}
	if m.o.Loaded != nil {
		m.o.Loaded(name, took, err)
	}
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, native.ErrNone) && !errors.Is(err, native.ErrCorrupt) { // removed meanwhile
		err = fmt.Errorf("%w: %w", err, native.ErrNone)
	}
	if err == nil {
		m.compare(name, number, v)
	}
	s.pushing.Lock()
	if err == nil {
		m.inherit(name, number, v)
	}
	m.mu.Lock()
	h.version, h.err, h.state = v, err, Available
	switch {
	case err == nil:
		if h.suspect = false; before != nil {
			s.versions[number] = h
		}
	case before == nil:
		h.state = End
		h.failed(err, fresh, suspect, took)
	default:
		before.other = dir
		before.failed(err, fresh, false, took)
	}
	gone := m.closed || m.models[name] != s // it was removed while it was opened
	m.mu.Unlock()
	s.pushing.Unlock()
	if err != nil {
		if failed == nil || err.Error() != failed.Error() { // once, however often it is tried
			log := func() { m.log.Error("a version cannot be served", "model", name, "version", number, "err", err) }
			if m.first {
				m.unlogged = append(m.unlogged, log)
			} else {
				log()
			}
		}
		return before != nil
	}
	if before != nil {
		m.drop(before)
	}
	if gone {
		m.drop(h)
		return false
	}
	n := int64(0)
	for _, t := range v.Model().Tables {
		n += t.Rows
	}
	m.log.Info("a version is served", "model", name, "version", number, "dir", dir, "rows", n, "warmed_by", warmed, "duration", took)
	return true
}

// compare says where a version that is about to serve is not of the model that serves: exports of two models lie in one folder, or callers have to send something else from now on.
func (m *Models) compare(name string, number int64, v *Version) {
	h, err := m.use(name, Which{})
	if err != nil { // the first one
		return
	}
	defer m.release(h)
	if was, is := h.version.Model().From.Job, v.Model().From.Job; was != is {
		m.log.Warn("a version is of another job than the one that serves: a folder has the exports of one model", "model", name, "version", number, "job", is, "serves", h.number, "serves_job", was)
	}
	was, is := h.version.interfaces(), v.interfaces()
	added := slices.DeleteFunc(slices.Clone(is), func(x string) bool { return slices.Contains(was, x) })
	gone := slices.DeleteFunc(was, func(x string) bool { return slices.Contains(is, x) })
	if len(added)+len(gone) > 0 {
		m.log.Warn("a version has other inputs or outputs than the one that serves", "model", name, "version", number, "added", added, "removed", gone, "serves", h.number)
	}
}

// interfaces are what callers send and get: features and heads.
func (v *Version) interfaces() (out []string) {
	for _, f := range v.in.features {
		of := "sparse"
		if f.Kind == model.Dense {
			of = fmt.Sprintf("dense of %d", max(f.Dim, 1))
		}
		out = append(out, fmt.Sprintf("feature %s (%s)", f.Name, of))
	}
	for _, h := range v.heads {
		out = append(out, fmt.Sprintf("head %s of %d", h.Name, h.Width))
	}
	return out
}

// open opens a version, verifies all of it if it is suspect, and answers its warm-up requests, so many.
func (m *Models) open(ctx context.Context, name string, number int64, dir string, suspect bool) (v *Version, warmed int, err error) {
	switch {
	case m.o.Part != nil:
		v, err = openRows(ctx, dir, m.o.Recipe, *m.o.Part, m.o.Push)
	case m.o.Rows != nil:
		v, err = openModel(ctx, name, number, dir, m.o.Recipe, m.o.Rows)
	case m.o.Push != nil:
		var e *native.Export
		if e, err = native.Open(ctx, dir); err == nil {
			v, err = NewVersion(ctx, m.o.Push(e), m.o.Recipe)
		}
	default:
		v, err = Open(ctx, dir, m.o.Recipe)
	}
	if err != nil {
		return nil, 0, err
	}
	v.cores = m.cores
	if p, ok := v.params.(onDisk); ok && suspect {
		var faults []error
		faults, err = p.Verify(ctx)
		err = errors.Join(append(faults, err)...)
	}
	if err == nil && m.o.Part == nil {
		warmed, err = v.warmUp(ctx, dir)
	}
	if err != nil {
		return nil, 0, errors.Join(err, v.Close())
	}
	return v, warmed, nil
}

// changed says when what is opened of a version was written last: the files of its folder, where there is a manifest, and the requests that warm it up.
func changed(dir string) (at time.Time) {
	newest := func(info fs.FileInfo, err error) {
		if err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	for _, name := range warmupFiles(dir) {
		newest(os.Stat(name))
	}
	if _, err := os.Stat(filepath.Join(dir, native.ManifestName)); err != nil {
		return at // it is being written
	}
	files := os.DirFS(dir)
	_ = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			newest(fs.Stat(files, name))
		}
		return nil // what is gone meanwhile is no file of it
	})
	return at
}

// drop closes a version when its last request has ended.
func (m *Models) drop(h *held) {
	m.mu.Lock()
	if h.state != Available {
		m.mu.Unlock()
		return
	}
	h.state = Unloading
	unused := h.uses == 0
	m.mu.Unlock()
	if unused {
		m.end(h)
	}
}

// end closes a version that nobody uses any more. It has the one call.
func (m *Models) end(h *held) {
	err := h.version.Close()
	m.mu.Lock()
	h.version, h.state = nil, End
	m.mu.Unlock()
	if err != nil {
		m.log.Error("a version did not close", "model", h.model, "version", h.number, "err", err)
		return
	}
	m.log.Info("a version is no longer served", "model", h.model, "version", h.number)
}

// Which names a version in a request: the newest that serves, or one by its number or label.
type Which struct {
	// Number, if not nil, is the version's; Label, if not empty, a label of the model.
	Number *int64
	Label  string
}

// Use returns a version of a model, which stays open until done is called, once. Errors: NOT_FOUND for a model, version or label that is not served; UNAVAILABLE for a model of
// which no version is.
func (m *Models) Use(name string, which Which) (v *Version, number int64, done func(), err error) {
	h, err := m.use(name, which)
	if err != nil {
		return nil, 0, nil, err
	}
	return h.version, h.number, sync.OnceFunc(func() { m.release(h) }), nil
}

// use is Use, and ends by release.
func (m *Models) use(name string, which Which) (*held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(name)
	if err != nil {
		return nil, err
	}
	wanted, newest := int64(0), which.Number == nil && which.Label == ""
	if which.Number != nil {
		wanted = *which.Number
	}
	if which.Label != "" {
		n, ok := s.config.Labels[which.Label]
		if !ok {
			return nil, refuse(codes.NotFound, "model %q has no label %q%s", name, which.Label, nearest.Suggest(which.Label, slices.Sorted(maps.Keys(s.config.Labels))))
		}
		wanted = n
	}
	var best *held
	for _, h := range s.versions {
		if h.state == Available && (newest && (best == nil || h.number > best.number) || !newest && h.number == wanted) {
			best = h
		}
	}
	switch {
	case best == nil && newest:
		return nil, refuse(codes.Unavailable, "no version of model %q is served: ask for its status", name)
	case best == nil:
		var open []int64
		for _, h := range s.versions {
			if h.state == Available {
				open = append(open, h.number)
			}
		}
		slices.Sort(open)
		return nil, refuse(codes.NotFound, "version %d of model %q is not served; %v are", wanted, name, open)
	}
	best.uses++
	return best, nil
}

// find is a model by its name. The lock is held.
func (m *Models) find(name string) (*servable, error) {
	s := m.models[name]
	if s == nil {
		return nil, refuse(codes.NotFound, "there is no model %q%s", name, nearest.Suggest(name, slices.Sorted(maps.Keys(m.models))))
	}
	return s, nil
}

// release ends a use of a version.
func (m *Models) release(h *held) {
	m.mu.Lock()
	h.uses--
	last := h.uses == 0 && h.state == Unloading
	m.mu.Unlock()
	if last {
		m.end(h)
	}
}

// Status describes the versions of a model, newest first. Errors: NOT_FOUND.
func (m *Models) Status(name string, which Which) ([]VersionStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(name)
	if err != nil {
		return nil, err
	}
	wanted := which.Number
	if n, ok := s.config.Labels[which.Label]; ok {
		wanted = &n
	} else if which.Label != "" {
		return nil, refuse(codes.NotFound, "model %q has no label %q", name, which.Label)
	}
	var out []VersionStatus
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(s.versions))) {
		if h := s.versions[number]; wanted == nil || *wanted == number {
			st := VersionStatus{Version: number, State: h.state, Err: h.err}
			if s.live() && h.version != nil {
				st.AsOf = h.version.AsOf()
			}
			out = append(out, st)
		}
	}
	if len(out) == 0 && wanted != nil {
		return nil, refuse(codes.NotFound, "model %q has no version %d", name, *wanted)
	}
	return out, nil
}

// Rows implements [rows.Exports].
func (m *Models) Rows(model string, manifest uint32) (rows.Opened, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(model)
	if err != nil {
		return rows.Opened{}, nil, err
	}
	for _, h := range s.versions {
		if e, ok := h.export(); ok && e.Manifest == manifest {
			h.uses++
			h.asked = time.Now()
			p := h.version.params
			return rows.Opened{Held: e, Layout: p.Model().Graph.Layout(), Store: p.Reader()}, func() { m.release(h) }, nil
		}
	}
	return rows.Opened{}, nil, refuse(codes.FailedPrecondition, "the export of model %q with the manifest %08x is not open; %s", model, manifest, s.open())
}

// export is that of a version whose rows others may read.
func (h *held) export() (e rows.Held, ok bool) {
	if h.state != Available {
		return e, false
	}
	switch p := h.version.params.(type) {
	case mapped:
		return rows.Held{Version: h.number, Manifest: p.Manifest()}, true
	case Pushable:
		return rows.Held{Version: h.number, Manifest: p.Manifest(), Changes: true}, true
	}
	return e, false
}

// Held implements [rows.Exports].
func (m *Models) Held(model string) ([]rows.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(model)
	if err != nil {
		return nil, err
	}
	return s.held(), nil
}

// held are the exports of a model that are open, the newest first.
func (s *servable) held() (out []rows.Held) {
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(s.versions))) {
		if e, ok := s.versions[number].export(); ok {
			out = append(out, e)
		}
	}
	return out
}

// open says which of them are.
func (s *servable) open() string {
	text := "no version is"
	for i, h := range s.held() {
		if i == 0 {
			text = ""
		}
		text += fmt.Sprintf("version %d (manifest %08x) is, ", h.Version, h.Manifest)
	}
	return strings.TrimSuffix(text, ", ")
}

// Names are the models, in order.
func (m *Models) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.models))
}

// Ready reports whether each model has a version that serves.
func (m *Models) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.models {
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.versions)), func(h *held) bool { return h.state == Available }) {
			return false
		}
	}
	return true
}

// Close closes all versions, those in use when their last request has ended. Nothing is opened from then on.
func (m *Models) Close() {
	m.mu.Lock()
	m.closed = true
	var all []*held
	for _, s := range m.models {
		all = slices.AppendSeq(all, maps.Values(s.versions))
	}
	m.mu.Unlock()
	for _, h := range all {
		m.drop(h)
	}
}
