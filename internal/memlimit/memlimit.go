// Package memlimit finds out how much memory a process may take before the system ends it: what the machine has, or the
// limit of its control group (versions 1 and 2).
package memlimit

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Limit is how much memory there is.
type Limit struct {
	Bytes int64
	// Of says whose limit it is: "the machine", "control group /x".
	Of string
}

// Find returns the least limit that holds for this process; ok is false when none can be found. root is the root of the file
// system, os.DirFS("/").
func Find(root fs.FS) (l Limit, ok bool) {
	if n, found := meminfo(root, "MemTotal:"); found {
		l, ok = Limit{n, "the machine"}, true
	}
	for _, dir := range groups(root) {
		for _, v := range versions {
			if n, found := number(root, path.Join(dir, v.limit)); found && (!ok || n < l.Bytes) {
				l, ok = Limit{n, "control group /" + dir}, true
			}
		}
	}
	return l, ok
}

// Free returns how much memory is left, of the machine for all programs or of a control group for all of its processes, whichever is less. Files that the
// system has read or written count as free: it drops them first. ok is false when nothing is known.
func Free(root fs.FS) (bytes int64, ok bool) {
	bytes, ok = meminfo(root, "MemAvailable:")
	for _, dir := range groups(root) {
		for _, v := range versions {
			limit, found := number(root, path.Join(dir, v.limit))
			if !found {
				continue
			}
			used, found := number(root, path.Join(dir, v.used))
			if !found {
				continue
			}
			for _, key := range v.files {
				n, _ := stat(root, path.Join(dir, "memory.stat"), key)
				used -= n
			}
			if free := limit - used; !ok || free < bytes {
				bytes, ok = free, true
			}
		}
	}
	return bytes, ok
}

// versions are the files of control groups, of version 2 and 1: those with the limit and what is used, and the keys of memory.stat that count files which the system has in memory.
var versions = []struct {
	limit, used string
	files       [2]string
}{
	{"memory.max", "memory.current", [2]string{"active_file", "inactive_file"}},
	{"memory.limit_in_bytes", "memory.usage_in_bytes", [2]string{"total_active_file", "total_inactive_file"}},
}

// stat is a line of a file of keys and numbers.
func stat(root fs.FS, name, key string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Resident is how much memory this process has, without the files that it maps; ok is false when that is not known.
func Resident(root fs.FS) (bytes int64, ok bool) {
	return kilobytes(root, "proc/self/status", "RssAnon:")
}

// meminfo is a line of /proc/meminfo.
func meminfo(root fs.FS, key string) (int64, bool) { return kilobytes(root, "proc/meminfo", key) }

// kilobytes is a line of a file of /proc whose unit is kB.
func kilobytes(root fs.FS, name, key string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil && n < math.MaxInt64>>10
		}
	}
	return 0, false
}

// groups are the folders of the memory groups of this process and of all above them. In a container the group's name may be
// that outside of it, while its folder is the root of what is mounted: folders that are not there are looked for in vain.
func groups(root fs.FS) []string {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var base string
		switch {
		case f[0] == "0" && f[1] == "":
			base = "sys/fs/cgroup"
		case hasMemory(f[1]):
			base = "sys/fs/cgroup/memory"
		default:
			continue
		}
		for name := path.Clean("/" + f[2]); ; name = path.Dir(name) {
			out = append(out, path.Join(base, name))
			if name == "/" {
				break
			}
		}
	}
	return out
}

func hasMemory(controllers string) bool {
	for c := range strings.SplitSeq(controllers, ",") {
		if c == "memory" {
			return true
		}
	}
	return false
}

// number is a file of one number; "max", and what version 1 says for it, is none.
func number(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil && n > 0 && n < 1<<60
}
