package deadletter

import "os"

// LeaveRoom makes the disk of f full once n more bytes are written.
func LeaveRoom(f *File, n int, full error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.mu.f
	if s, ok := file.(*small); ok {
		file = s.onDisk
	}
	f.mu.f = &small{onDisk: file, room: n, full: full}
}

// small is a file on a disk that gets full.
type small struct {
	onDisk
	room int
	full error
}

func (s *small) Write(b []byte) (int, error) {
	n, err := s.onDisk.Write(b[:min(len(b), s.room)])
	if s.room -= n; err == nil && n < len(b) {
		err = &os.PathError{Op: "write", Path: "dead.jsonl", Err: s.full}
	}
	return n, err
}
