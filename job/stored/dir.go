package stored

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/shard"
)

// SnapshotsIn is where a job's snapshots lie.
func SnapshotsIn(c *spec.Config) string { return filepath.Join(c.Dir, "snapshots") }

// WorkerName is unique among the workers that run now.
func WorkerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Unwritable is what to do about a job's dir that cannot be made or written to.
func Unwritable(err error) error {
	return fault.Mark(fmt.Errorf("job: dir: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another dir (--set dir=FOLDER)")
}

// Claim makes a part of the job's dir this process's alone: two runs would overwrite each other's snapshots. taken says
// what it means that another process has it. A dir that is not there yet is made.
func Claim(c *spec.Config, name, taken string) (*fsx.Lock, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, Unwritable(err)
	}
	lock, err := fsx.TryLock(filepath.Join(c.Dir, name))
	if errors.Is(err, fsx.ErrLocked) {
		return nil, fault.Mark(fmt.Errorf("job: %s %s", taken, c.Dir), pipeline.ErrUnavailable, "wait for it to end, or give this job another dir")
	}
	if err != nil {
		return nil, Unwritable(err)
	}
	return lock, nil
}

// BeginAnew puts earlier snapshots and logs aside; it never deletes them. In a folder of logs that the user named it leaves
// alone what is another job's.
func BeginAnew(c *spec.Config, notice func(string, ...any)) error {
	dirs := []string{SnapshotsIn(c)}
	switch o := LogOptions(c); {
	case o == nil:
	case c.PS.WAL.Dir == "":
		dirs = append(dirs, o.Dir)
	default:
		mine, err := ID(c)
		if err != nil {
			return err
		}
		logs, err := filepath.Glob(filepath.Join(o.Dir, shard.LogPattern))
		if err != nil {
			return fault.Config("ps.wal.dir: %s: %w", o.Dir, err)
		}
		for _, dir := range logs {
			if owner, _ := shard.LogOwner(dir); owner == mine {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		aside, err := putAside(dir)
		if err != nil {
			return fmt.Errorf("job: put the earlier state aside: %w", err)
		}
		if aside != "" {
			notice("starting over; what was in %s is now in %s", dir, aside)
		}
	}
	return nil
}

// putAside renames a folder and returns its new name, "" where there is none.
func putAside(dir string) (string, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", dir, n)
		if _, err := os.Stat(aside); errors.Is(err, os.ErrNotExist) {
			return aside, os.Rename(dir, aside)
		}
	}
}

// ID is what no other job has, wherever its dir is moved to and whatever it is called: a random number in a file of the dir,
// made when it is first asked for. Logs outside of the dir are distinguished from those of other jobs by it.
func ID(c *spec.Config) (string, error) {
	path := filepath.Join(c.Dir, "id")
	for {
		b, err := os.ReadFile(path)
		if id := strings.TrimSpace(string(b)); err == nil && id != "" {
			return id, nil
		}
		if err == nil {
			return "", fmt.Errorf("job: dir: %s is empty; remove it: %w", path, pipeline.ErrUnavailable)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", Unwritable(err)
		}
		// Another process of the job may be making it: the one that gives it its name first has made it.
		tmp, err := os.CreateTemp(c.Dir, "id-*.tmp")
		if err != nil {
			return "", Unwritable(err)
		}
		_, err = fmt.Fprintf(tmp, "%016x\n", rand.Uint64())
		err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
		if err == nil {
			if err = os.Link(tmp.Name(), path); errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
				err = os.Rename(tmp.Name(), path) // file systems without links
			}
		}
		if rerr := os.Remove(tmp.Name()); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(rerr, err)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return "", Unwritable(err)
		}
	}
}

// LogOptions is nil without durability: wal.
func LogOptions(c *spec.Config) *shard.LogOptions {
	if c.PS.Durability != "wal" {
		return nil
	}
	dir := c.PS.WAL.Dir
	if dir == "" {
		dir = filepath.Join(c.Dir, "wal")
	}
	return &shard.LogOptions{Dir: dir, Identity: "features " + c.Recipe().Hash(), NoSync: !c.PS.WAL.Sync, SegmentBytes: int64(c.PS.WAL.SegmentBytes)}
}

// StandbyLockName is the lock of a shard's standby in the job's dir.
func StandbyLockName(shard int) string { return fmt.Sprintf("lock-standby-%d", shard) }

// LockName is the lock of a shard in the job's dir; that of shard 0 is also what a run with shards of its own takes.
func LockName(shard int) string {
	if shard == 0 {
		return "lock"
	}
	return fmt.Sprintf("lock-shard-%d", shard)
}
