package filesplit

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// scheme is how a URL begins.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+://`)

// IsURL reports whether a path is a URL, which no local file has: s3://bucket/part-0.csv.
func IsURL(path string) bool { return scheme.MatchString(path) }

// withoutSecrets is a URL without a password.
func withoutSecrets(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}

// Limits of [DataIn]: how deep it looks, and at how many names.
const (
	dataDepth = 6
	dataNames = 10_000
)

// DataIn guesses the pattern of the files of data in a local folder: out/*/*.parquet. Names that begin with "_" or "." do not count. Empty:
// there are none.
func DataIn(dir string) string {
	pattern := filepath.ToSlash(filepath.Clean(dir))
	level, left := []string{dir}, dataNames
	for depth := range dataDepth {
		var below []string
		extension, files := "", 0
		for _, d := range level {
			entries, err := os.ReadDir(d)
			if err != nil {
				continue
			}
			for _, e := range entries {
				if left--; left < 0 {
					break
				}
				switch name := e.Name(); {
				case isHidden(name):
				case e.IsDir():
					below = append(below, filepath.Join(d, name))
				default:
					if ext := extensions(name); files == 0 {
						extension = ext
					} else if ext != extension {
						extension = ""
					}
					files++
				}
			}
		}
		if files > 0 {
			return pattern + strings.Repeat("/*", depth+1) + extension
		}
		level = below
	}
	return ""
}

// extensions are those of a name that say what a file is: .csv.gz.
func extensions(name string) string {
	ext := filepath.Ext(name)
	if ext == ".gz" {
		ext = filepath.Ext(strings.TrimSuffix(name, ext)) + ext
	}
	return ext
}

// Partition finds the value that a path gives a column in the way of Hive: the folder dt=2026-11-01 is one for dt.
func Partition(path, column string) (folder string, ok bool) {
	for part := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if name, _, is := strings.Cut(part, "="); is && name == column {
			return part, true
		}
	}
	return "", false
}
