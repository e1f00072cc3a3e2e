package spec

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
)

// place is where a job reads or writes: a topic, files or a folder.
type place struct {
	key     string // of the job
	written bool
	topic   *component.Topic
	// files are absolute patterns of files, of [path.Match]. Those that are read say which; those that are written may be made.
	files []string
	// folder is absolute, or the URL of a store. Files are made right in it; deep: in all folders below it too; parts: in folders right below it, whatever
	// these are called.
	folder string
	deep   bool
	parts  bool
	// rows is set for an output: several of them may share a topic.
	rows bool
}

// placesOf is the table of all places that a job reads and writes. Every check that one is not the other goes by it.
func placesOf(c *Config) (out []place) {
	section := func(at, name string, value any, rows bool) {
		at = conf.Join(at, name)
		if t, ok := value.(component.Topics); ok {
			for _, topic := range t.Topics() {
				out = append(out, place{key: conf.Join(at, topic.Key), written: topic.Written, topic: &topic, rows: rows})
			}
		}
		if l, ok := value.(component.Local); ok {
			for _, p := range l.LocalPaths() {
				is := place{key: conf.Join(at, p.Key), written: p.Written, rows: rows}
				switch {
				case p.Folder:
					is.folder = absolute(p.Path)
				case len(p.Files) > 0:
					is.files = globs(p.Files)
				case p.Written:
					is.files = []string{escaped(absolute(p.Path))}
				default:
					is.files = globs([]string{p.Path})
				}
				out = append(out, is)
			}
		}
	}
	source := func(at string, s *Source) {
		if s != nil && s.Value() != nil {
			section(at, s.Name(), s.Value(), false)
		}
	}
	reads := func(key, file string) {
		if file != "" && !fsx.IsURL(file) {
			out = append(out, place{key: key, files: []string{escaped(absolute(file))}})
		}
	}
	source(c.SourceKey(), &c.Source)
	source("eval.source", c.Eval.Source)
	source("predict.source", c.Predict.Source)
	source("backfill.source", c.Backfill.Source)
	for i, j := range c.Parse.Joins {
		reads(fmt.Sprintf("parse.joins[%d].file", i), j.File)
	}
	if c.Model.Value() != nil {
		section("model", c.Model.Name(), c.Model.Value(), false)
	}
	reads("the job file", c.File())
	if t := c.PS.TLS; t != nil {
		reads("ps.tls.cert", t.Cert)
		reads("ps.tls.key", t.Key)
		reads("ps.tls.ca", t.CA)
	}
	reads("ps.token.file", c.PS.Token.File)
	if from := local(c.Restore.From); from != "" {
		out = append(out, place{key: "restore.from", folder: from}, place{key: "restore.from", folder: filepath.Join(from, snapshotsDir)})
		if strings.HasPrefix(filepath.Base(from), "snap-") {
			out = append(out, place{key: "restore.from", folder: filepath.Dir(from)})
		}
	}

	if d := c.Train.DeadLetter; d != nil && d.Value() != nil {
		section("train.dead_letter", d.Name(), d.Value(), false)
	}
	outputs := func(at string, list []Output, parts bool) {
		for i := range list {
			from := len(out)
			if to := &list[i].To; to.Value() != nil {
				section(fmt.Sprintf("%s[%d].to", at, i), to.Name(), to.Value(), true)
			}
			for ; from < len(out); from++ {
				out[from].parts = parts && out[from].folder != ""
			}
		}
	}
	outputs("outputs", c.Outputs, false)
	outputs("eval.outputs", c.Eval.Outputs, true)
	if to := c.Predict.To; to != nil && to.Value() != nil {
		section("predict.to", to.Name(), to.Value(), true)
	}
	if c.Dir != "" && !fsx.IsURL(c.Dir) {
		out = append(out, place{key: "dir", written: true, folder: absolute(filepath.Join(c.Dir, snapshotsDir)), deep: true})
		if c.PS.Durability == "wal" && c.PS.WAL.Dir == "" {
			out = append(out, place{key: "dir", written: true, folder: absolute(filepath.Join(c.Dir, "wal")), deep: true})
		}
	}
	if c.PS.Durability == "wal" && c.PS.WAL.Dir != "" {
		out = append(out, place{key: "ps.wal.dir", written: true, folder: absolute(c.PS.WAL.Dir)})
	}
	if to := local(c.Snapshot.Upload); to != "" {
		out = append(out, place{key: "snapshot.upload", written: true, folder: to})
	}
	return out
}

// snapshotsDir is where snapshots lie in the job's dir.
const snapshotsDir = "snapshots"

// local is the path from the root of a path or a file URL, or the URL of another store; empty for what is neither.
func local(text string) string {
	switch {
	case text == "":
		return ""
	case !fsx.IsURL(text):
		return absolute(text)
	}
	u, err := fsx.ParseURL(text)
	switch {
	case err != nil:
		return ""
	case u.Scheme == "file":
		return absolute(filepath.FromSlash(u.Path))
	}
	return u.String()
}

// absolute is a path from the root, with symbolic links followed as far as the folders above it exist.
func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	missing := ""
	for at := dir; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, missing)
		}
		if filepath.Dir(at) == at {
			return dir
		}
		missing = filepath.Join(filepath.Base(at), missing)
	}
}

const meta = `*?[\`

// escaped is the pattern of a path that stands for itself.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// globs makes patterns absolute, and follows symbolic links of the folders that they begin with.
func globs(patterns []string) (out []string) {
	const most = 1000 // of the paths that a macro stands for: so many name every folder that they are in
	for _, pattern := range patterns {
		if fsx.IsURL(pattern) {
			continue
		}
		paths, err := filesplit.Macros(pattern)
		if err != nil { // opening the source says so
			continue
		}
		for _, p := range paths[:min(len(paths), most)] {
			if _, err := os.Stat(p); err == nil || !strings.ContainsAny(p, meta) { // a file may have brackets in its name
				out = append(out, escaped(absolute(p)))
				continue
			}
			parts := strings.Split(filepath.ToSlash(filepath.Clean(p)), "/")
			n := slices.IndexFunc(parts, func(part string) bool { return strings.ContainsAny(part, meta) })
			begin := strings.Join(parts[:n], "/")
			if n > 0 && begin == "" {
				begin = "/"
			}
			out = append(out, path.Join(append([]string{escaped(absolute(begin))}, parts[n:]...)...))
		}
	}
	return out
}

// verdict says that two places, of which w is written, must not be these.
type verdict int

const (
	apart     verdict = iota
	feeds             // what is written to w is read
	mixed             // what is written to both lies side by side
	destroyed         // what is written to one is removed or overwritten by the other
)

// compare compares a place that is written with another one.
func (w *place) compare(o *place) verdict {
	found := feeds
	if o.written {
		found = mixed
		if w.deep || o.deep {
			found = destroyed
		}
	}
	switch {
	case w.key == o.key:
		return apart
	case w.topic != nil && o.topic != nil:
		if w.topic.Topic == o.topic.Topic && commonBroker(w.topic.Brokers, o.topic.Brokers) && (!w.rows || !o.rows) {
			return found
		}
		return apart
	case w.rows && o.rows: // outputs say by themselves what no other may name
		return apart
	}
	if w.meets(o) {
		return found
	}
	return apart
}

func (w *place) meets(o *place) bool {
	switch {
	case w.folder != "" && o.folder != "":
		return w.folder == o.folder || w.deep && inside(o.folder, w.folder) || o.deep && inside(w.folder, o.folder)
	case w.folder != "":
		return slices.ContainsFunc(o.files, func(f string) bool { return filesIn(f, w) })
	case o.folder != "":
		return slices.ContainsFunc(w.files, func(f string) bool { return filesIn(f, o) })
	}
	for _, a := range w.files {
		for _, b := range o.files {
			if overlap(a, b) {
				return true
			}
		}
	}
	return sameFile(w.files, o.files)
}

// inside reports whether a path lies below a folder.
func inside(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// filesIn reports whether files of a pattern may lie where a folder has its own.
func filesIn(pattern string, of *place) bool {
	dir := strings.Split(path.Dir(pattern), "/")
	want := strings.Split(escaped(filepath.ToSlash(of.folder)), "/")
	switch below := len(dir) - len(want); {
	case below < 0:
		return false
	case below == 0, of.deep:
	case !of.parts || below > 1 || !strings.ContainsAny(dir[len(want)], meta):
		return false
	}
	return overlap(strings.Join(dir[:len(want)], "/"), strings.Join(want, "/"))
}

// sameFile reports whether a file that is there is one of those of both patterns under another name: by a link.
func sameFile(written, read []string) bool {
	var have []os.FileInfo
	stat := func(pattern string) (out []os.FileInfo) {
		names, _ := filepath.Glob(pattern) // a bad pattern is said when the source is opened
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				out = append(out, info)
			}
		}
		return out
	}
	for _, w := range written {
		have = append(have, stat(w)...)
	}
	if len(have) == 0 {
		return false
	}
	for _, r := range read {
		for _, info := range stat(r) {
			if slices.ContainsFunc(have, func(h os.FileInfo) bool { return os.SameFile(h, info) }) {
				return true
			}
		}
	}
	return false
}

// overlap reports whether some path matches both patterns. A class such as [0-9] counts as any character.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !overlapping(tokens(x[i]), tokens(y[i])) {
			return false
		}
	}
	return true
}

// token is a character of a pattern: itself, any one, or any number of them.
type token struct {
	r         rune
	any, many bool
}

func tokens(pattern string) (out []token) {
	rs := []rune(pattern)
	for i := 0; i < len(rs); i++ {
		switch rs[i] {
		case '*':
			out = append(out, token{many: true})
		case '?':
			out = append(out, token{any: true})
		case '[':
			end := i + 2 // the first of a class may be a bracket
			for end < len(rs) && rs[end] != ']' {
				if rs[end] == '\\' {
					end++
				}
				end++
			}
			out = append(out, token{any: true})
			i = end
		case '\\':
			if i++; i < len(rs) {
				out = append(out, token{r: rs[i]})
			}
		default:
			out = append(out, token{r: rs[i]})
		}
	}
	return out
}

func overlapping(a, b []token) bool {
	// ok[j] says that a[i:] and b[j:] have a text in common, from the back.
	next := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		ok := make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				ok[j] = true
			case i < len(a) && a[i].many:
				ok[j] = next[j] || j < len(b) && ok[j+1]
			case j < len(b) && b[j].many:
				ok[j] = ok[j+1] || i < len(a) && next[j]
			case i < len(a) && j < len(b):
				ok[j] = (a[i].any || b[j].any || a[i].r == b[j].r) && next[j+1]
			}
		}
		next = ok
	}
	return next[0]
}

// commonBroker reports whether two lists name a broker in common.
func commonBroker(a, b []string) bool {
	same := map[string]bool{}
	for _, addr := range a {
		same[broker(addr)] = true
	}
	return slices.ContainsFunc(b, func(addr string) bool { return same[broker(addr)] })
}

func broker(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// say says what is wrong with a place that is written, given another one.
func (v verdict) say(key string) string {
	switch v {
	case feeds:
		return fmt.Sprintf("is read by the job too (%s), which would read or overwrite what it writes here; name another place", key)
	case mixed:
		return fmt.Sprintf("is where the job writes something else too (%s); give each a place of its own", key)
	case destroyed:
		return fmt.Sprintf("is where the job keeps something else too (%s): each would remove the other's files; give each a folder of its own", key)
	}
	return ""
}

// places checks that nothing is written to where the job reads or keeps something else.
func (v *validator) places(c *Config) {
	all := placesOf(c)
	told := map[[2]string]bool{}
	for i := range all {
		w := &all[i]
		if !w.written || w.key == "dir" {
			continue
		}
		for j := range all {
			o := &all[j]
			is := w.compare(o)
			if is == apart || told[[2]string{o.key, w.key}] {
				continue
			}
			told[[2]string{w.key, o.key}] = true
			v.fault(w.key, "%s", is.say(o.key))
			break
		}
	}
	for i := range all { // the job's own folders are named last: they are where they are by default
		for j := range all {
			if w, o := &all[i], &all[j]; w.written && w.key == "dir" && !o.written && o.key != "restore.from" && w.compare(o) != apart {
				v.fault(o.key, "is in a folder of the job's dir that belongs to its snapshots or logs; name another place")
				return
			}
		}
	}
}

// Destination checks that a file or folder that a command writes, beside what the job says, is not one that the job reads or keeps something in. flag is what names it.
// Errors: [pipeline.ErrConfig].
func (c *Config) Destination(flag, path string, folder bool) error {
	at := local(path)
	if at == "" {
		return nil
	}
	w := place{key: flag, written: true}
	if w.files = []string{escaped(at)}; folder {
		w.files, w.folder = nil, at
	}
	for _, o := range placesOf(c) {
		if is := w.compare(&o); is != apart {
			return fmt.Errorf("job: %s %s %s: %w", flag, path, is.say(o.key), pipeline.ErrConfig)
		}
	}
	return nil
}

// CheckPlaces checks that nothing is written to where the job reads or keeps something else. Loading a job has done so: it is for one that was changed since, and
// for what only brokers know. Where topics of one name are written and read by lists of brokers that have none in common, it asks both lists for their
// cluster. It passes over lists that do not answer: using them fails with a better error. Errors: a [*ConfigError].
func (c *Config) CheckPlaces(ctx context.Context) error {
	all := placesOf(c)
	ids := map[string]string{}
	cluster := func(t *component.Topic) string {
		brokers := slices.Clone(t.Brokers)
		slices.Sort(brokers)
		of := strings.Join(brokers, ",")
		if _, asked := ids[of]; !asked && t.Cluster != nil {
			ids[of], _ = t.Cluster(ctx)
		}
		return ids[of]
	}
	v := &validator{c: c}
	v.places(c)
	for i := range all {
		w := &all[i]
		if w.topic == nil || !w.written {
			continue
		}
		for j := range all {
			o := &all[j]
			if o.topic == nil || o.topic.Topic != w.topic.Topic || o.written || w.compare(o) != apart {
				continue
			}
			if id := cluster(w.topic); id != "" && id == cluster(o.topic) {
				v.fault(w.key, "%s (both lists of brokers are of the cluster %s)", feeds.say(o.key), id)
				break
			}
		}
	}
	if len(v.faults) > 0 {
		return &ConfigError{Faults: v.faults}
	}
	return nil
}
