package filesink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/pipeline"
)

// Names of files: source~split~from.extension once they are complete, .source~split~from.extension-RANDOM.tmp before
// ([fsx.Local]). In source and split everything but letters, digits, dots, underscores and hyphens is written %XX, so that ~
// separates.
const (
	temporarySuffix = ".tmp"
	maxStem         = 160 // bytes of source~split; longer ones end in a hash
)

// stem is what the names of all files of a split begin with.
func stem(source, split string) string {
	s := escape(source) + "~" + escape(split)
	if len(s) > maxStem {
		sum := sha256.Sum256([]byte(s))
		s = s[:maxStem-17] + "~" + hex.EncodeToString(sum[:8])
	}
	return s + "~"
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// fileName is the name of the file that begins at a position.
func fileName(stem string, from pipeline.Position, extension string) string {
	return fmt.Sprintf("%s%020d%s", stem, from, extension)
}

// parseName returns the position that a visible file of the split begins at; ok is false for any other file.
func parseName(stem, extension, name string) (from pipeline.Position, ok bool) {
	rest, ok := strings.CutPrefix(name, stem)
	if !ok {
		return 0, false
	}
	digits, ok := strings.CutSuffix(rest, extension)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return pipeline.Position(n), err == nil && n >= 0
}

// unfinished reports whether a file is one of the split that was never completed.
func unfinished(stem, extension, name string) bool {
	rest, ok := strings.CutPrefix(name, ".")
	if !ok || !strings.HasSuffix(rest, temporarySuffix) {
		return false
	}
	final := rest[:max(0, strings.LastIndexByte(rest, '-'))] // what follows is random
	_, ok = parseName(stem, extension, final)
	return ok
}
