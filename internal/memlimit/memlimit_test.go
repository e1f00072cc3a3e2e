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
