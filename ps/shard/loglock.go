package shard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
)

// Files in a log's folder: the process that has the log open holds the one locked, the other names the job.
const (
	logLockName  = "lock"
	logOwnerName = "owner"
)

// logLock is the claim on a log's folder. The nil lock is none.
type logLock struct{ held *fsx.Lock }

// lockLog claims a log's folder. Logs on file systems of tests have no locks. Errors: [ps.ErrInUse], those of making the file.
func lockLog(o *LogOptions) (*logLock, error) {
	if _, real := o.Disk.(fsx.OS); !real && o.Disk != nil {
		return nil, nil
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("write-ahead log: %w", err)
	}
	held, err := fsx.TryLock(filepath.Join(o.Dir, logLockName))
	switch {
	case errors.Is(err, fsx.ErrLocked):
		whose := "another process"
		if _, job := LogOwner(o.Dir); job != "" {
			whose = job
		}
		return nil, fmt.Errorf("the log in %s is in use by %s; give this job another ps.wal.dir, or end the other process: %w", o.Dir, whose, ps.ErrInUse)
	case err != nil:
		return nil, fmt.Errorf("write-ahead log: %w", err)
	}
	return &logLock{held}, nil
}

// own writes down whose log it is. It only serves messages, and [LogOwner]: the log itself knows its owner.
func (l *logLock) own(o *LogOptions) {
	if l == nil || o.Owner == "" {
		return
	}
	if id, job := LogOwner(o.Dir); id != o.Owner || job != o.Job {
		_ = os.WriteFile(filepath.Join(o.Dir, logOwnerName), []byte(o.Owner+"\n"+o.Job+"\n"), 0o644)
	}
}

// LogOwner returns [LogOptions].Owner and Job of the log in the folder of a shard, "" where it does not say.
func LogOwner(dir string) (owner, job string) {
	b, err := os.ReadFile(filepath.Join(dir, logOwnerName))
	if err != nil {
		return "", ""
	}
	owner, job, _ = strings.Cut(strings.TrimSpace(string(b)), "\n")
	return owner, job
}

// Close gives the folder back.
func (l *logLock) Close() error {
	if l == nil {
		return nil
	}
	return l.held.Close()
}
