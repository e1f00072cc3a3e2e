package wal

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
)

var (
	// ErrCorrupt means that the log is not what its writer wrote, and not merely torn at its end. [ShardLog.Replay] returns it with
	// the file and offset. What the log held is lost to this shard: roll all shards back to a snapshot, then [ShardLog.Reset].
	ErrCorrupt = errors.New("log is damaged")
	// ErrIdentity means that the folder holds the log of another job, or of shards of another layout. [Open] returns it.
	ErrIdentity = failure.New(failure.Identity, "log of other shards")
	// ErrVersion means that the log was written in another version of the format. [Open] returns it.
	ErrVersion = errors.New("unknown log format version")
	// ErrBase means that the log has no border of that snapshot, or that borders would not ascend. [ShardLog.Replay], [ShardLog.Rotate],
	// [ShardLog.Trim] and [ShardLog.Follow] return it.
	ErrBase = errors.New("log has no such base")
	// ErrNoSpace means that the disk filled up. It ends the logs of all shards of the process. What was acknowledged is there; nothing more is taken. Free space or name
	// another folder, and start the shard again. Errors that wrap it wrap syscall.ENOSPC or syscall.EDQUOT too.
	ErrNoSpace = errors.New("no space left for the log")
	// ErrTooLarge means that a record has more than [MaxRecord] bytes. The log is as it was.
	ErrTooLarge = errors.New("record is too large for the log")
	// ErrClosed means that [Log.Close] was called.
	ErrClosed = errors.New("log is closed")
	// ErrState means that a method was called out of turn, such as Append before Begin. It is a mistake of the program.
	ErrState = errors.New("log is not in that state")
)

// corrupt says where the log is damaged and how.
func corrupt(path string, offset int64, format string, args ...any) error {
	return fmt.Errorf("wal: %s offset %d: %w: %w", path, offset, fmt.Errorf(format, args...), ErrCorrupt)
}

// fail says what failed, and for a full disk what can be done.
func (l *Log) fail(doing, path string, err error) error {
	if err == nil {
		return nil
	}
	if full(err) {
		st := l.Stats()
		return fmt.Errorf("wal: %s %s: %w: the log in %s has %d bytes and %d more wait; free space or name another folder and start the shard again; snapshots taken more often keep the log short: %w",
			doing, path, ErrNoSpace, l.o.Dir, st.Bytes, st.Pending, err)
	}
	if errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("wal: %s %s: a file may not have as many bytes as this one needs: raise the limit of this process (ulimit -f), or name a folder whose file system takes larger ones, and start the shard again: %w", doing, path, err)
	}
	if do, known := fsx.Advice(err); known {
		return fmt.Errorf("wal: %s %s: %w; %s, or name another folder, and start the shard again", doing, path, err, do)
	}
	return fmt.Errorf("wal: %s %s: %w", doing, path, err)
}

// full reports whether the disk has no room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// unreadable is an error of reading a file as callers know it: [ErrCorrupt], unless it speaks of this process.
func unreadable(path string, offset int64, err error) error {
	if !fsx.Damage(err) {
		return fmt.Errorf("wal: reading %s: %w", path, err)
	}
	return corrupt(path, offset, "%w", err)
}
