package components

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/deadletter"
)

// FileLetters is a file of JSON lines. Short form: the path alone.
type FileLetters struct {
	// Path is the file; it is appended to. {worker} in it stands for the worker's name.
	Path string `yaml:"path" short:"true" required:"true"`
	// MaxBytes is the size at which the file is renamed and a new one begun; 0: never.
	MaxBytes conf.Size `yaml:"max_bytes" default:"0" min:"0"`
}

// Open implements [component.DeadLetterConfig].
func (f *FileLetters) Open(worker string) (component.LetterBox, error) {
	return deadletter.OpenFile(f.path(worker), deadletter.FileOptions{MaxBytes: int64(f.MaxBytes)})
}

// CanOpen implements [component.DeadLetterConfig].
func (f *FileLetters) CanOpen(worker string) (key string, err error) {
	if err := fsx.CanWrite(f.path(worker)); err != nil {
		return "path", fmt.Errorf("%w; name another place, or make this one one that can be written to", err)
	}
	return "", nil
}

// Shared implements [component.DeadLetterConfig].
func (f *FileLetters) Shared() (ok bool, key, hint string) {
	return strings.Contains(f.Path, "{worker}"), "path", "is written by every worker of a cluster; put {worker} into the name"
}

// LocalPaths implements [component.Local].
func (f *FileLetters) LocalPaths() []component.LocalPath {
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, "{worker}", "*").Replace(f.Path)
	files := []string{escaped}
	if f.MaxBytes > 0 {
		files = append(files, escaped+".[0-9]*") // where full files are put
	}
	return []component.LocalPath{{Key: "path", Path: f.Path, Written: true, Files: files}}
}

func (f *FileLetters) path(worker string) string {
	return strings.ReplaceAll(f.Path, "{worker}", worker)
}
