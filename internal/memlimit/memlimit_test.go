package memlimit_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/monolith-go/monolith/internal/memlimit"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  memlimit.Limit
		ok    bool
	}{
		{"nothing", nil, memlimit.Limit{}, false},
		{"machine", map[string]string{"proc/meminfo": "MemTotal: 4194304 kB\nMemFree: 1 kB\n"}, memlimit.Limit{4 * gib, "the machine"}, true},
		{"version 2", map[string]string{
			"proc/meminfo": "MemTotal: 4194304 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1073741824\n",
		}, memlimit.Limit{gib, "control group /sys/fs/cgroup/a"}, true},
		{"version 2 in a container", map[string]string{
			"proc/meminfo": "MemTotal: 4194304 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n",
		}, memlimit.Limit{2 * gib, "control group /sys/fs/cgroup"}, true},
		{"version 1", map[string]string{
			"proc/meminfo": "MemTotal: 4194304 kB\n", "proc/self/cgroup": "5:cpu,memory:/docker/x\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}, memlimit.Limit{gib, "control group /sys/fs/cgroup/memory"}, true},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": "MemTotal: 4194304 kB\n", "proc/self/cgroup": "5:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, memlimit.Limit{4 * gib, "the machine"}, true},
		{"more than the machine", map[string]string{
			"proc/meminfo": "MemTotal: 4194304 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8589934592\n",
		}, memlimit.Limit{4 * gib, "the machine"}, true},
		{"garbage", map[string]string{
			"proc/meminfo": "MemTotal: x kB\n", "proc/self/cgroup": "nonsense\n0::../../x\n", "sys/fs/cgroup/memory.max": "-7\n",
		}, memlimit.Limit{}, false},
	} {
		root := fstest.MapFS{}
		for name, text := range tc.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, ok := memlimit.Find(root); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
	if l, ok := memlimit.Find(os.DirFS("/")); ok && l.Bytes < 1<<20 {
		t.Errorf("this machine: %+v", l)
	}
}

// TestFree: what is left is the least of the machine and of every group above the process. Files that the system has in memory count as free.
func TestFree(t *testing.T) {
	t.Parallel()
	const machine = "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  int64
		ok    bool
	}{
		{"nothing", nil, 0, false},
		{"machine", map[string]string{"proc/meminfo": machine}, 1 << 20, true},
		{"version 2", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5\n",
			"sys/fs/cgroup/a/memory.max": "1000000\n", "sys/fs/cgroup/a/memory.current": "900000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 600000\nfile 300000\nactive_file 100000\ninactive_file 150000\n",
		}, 350000, true},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "5:cpu,memory:/x\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1000000\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1000000\n",
			"sys/fs/cgroup/memory/x/memory.stat": "active_file 1\ninactive_file 1\ntotal_active_file 100\ntotal_inactive_file 50\n",
		}, 150, true},
		{"a group with more than the machine", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4000000\n", "sys/fs/cgroup/memory.current": "10\n",
		}, 1 << 20, true},
		{"a group that does not say what it uses", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n",
		}, 1 << 20, true},
	} {
		root := fstest.MapFS{}
		for name, text := range tc.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, ok := memlimit.Free(root); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %v; want %d, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
	root := fstest.MapFS{"proc/self/status": {Data: []byte("VmRSS:\t 90 kB\nRssAnon:\t      64 kB\nRssFile:\t 26 kB\n")}}
	if got, ok := memlimit.Resident(root); got != 64<<10 || !ok {
		t.Errorf("resident: %d, %v", got, ok)
	}
	if _, ok := memlimit.Resident(fstest.MapFS{}); ok {
		t.Error("without /proc something is resident")
	}
}
