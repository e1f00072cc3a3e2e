package conf

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span written with its unit: 500ms, 5m, 1h30m. 0 needs none.
type Duration time.Duration

// String renders the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText reads a duration; a number without a unit is an error.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	v, err := time.ParseDuration(s)
	if err != nil {
		if _, numErr := strconv.ParseFloat(s, 64); numErr == nil {
			return fmt.Errorf("%s has no unit; write %ss, %sm or %sms", s, s, s, s)
		}
		return fmt.Errorf("%q is not a duration such as 500ms, 5m or 1h30m", s)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes: 4096, 64KiB, 4MiB, 1GiB, or with powers of ten 64KB, 4MB, 1GB.
type Size int64

var sizeUnits = [...]struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
}

// String renders the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range [...]int{2, 1, 0} {
		if b := sizeUnits[u].bytes; s != 0 && int64(s)%b == 0 {
			return strconv.FormatInt(int64(s)/b, 10) + sizeUnits[u].name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// UnmarshalText reads a size; units are matched without regard to case.
func (s *Size) UnmarshalText(text []byte) error {
	str, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range sizeUnits {
		if n := len(str) - len(u.name); n > 0 && strings.EqualFold(str[n:], u.name) {
			str, unit = strings.TrimSpace(str[:n]), u.bytes
			break
		}
	}
	v, err := strconv.ParseInt(str, 10, 64)
	if err != nil || v > math.MaxInt64/unit || v < math.MinInt64/unit {
		return fmt.Errorf("%q is not a size such as 4096, 64KiB or 4MiB", text)
	}
	*s = Size(v * unit)
	return nil
}

// Secret names where a secret is kept; it never holds one that is in a file or on a command line, and renders
// without the secret itself.
type Secret struct {
	// Env is the environment variable that holds the secret.
	Env string
	// File is the file that holds it; one newline at its end is cut off.
	File string

	value string // of Env, taken when the configuration was loaded
	found bool
}

var (
	_ fmt.Stringer   = Secret{}
	_ fmt.GoStringer = Secret{}
	_ slog.LogValuer = Secret{}
)

// IsZero reports whether no secret is named.
func (s Secret) IsZero() bool { return s.Env == "" && s.File == "" }

// String describes where the secret is kept, never what it is.
func (s Secret) String() string {
	switch {
	case s.Env != "":
		return "{env: " + s.Env + "}"
	case s.File != "":
		return "{file: " + s.File + "}"
	}
	return ""
}

// GoString keeps %#v from printing the secret.
func (s Secret) GoString() string { return "conf.Secret" + s.String() }

// LogValue keeps logs from printing the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps encoders from printing the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Resolve fetches the secret. The file is read again each time, so a rotated secret is seen; an empty one has none. Errors name the variable or
// file, never its content.
func (s Secret) Resolve() (string, error) {
	switch {
	case s.Env != "":
		v, ok := s.value, s.found
		if !ok {
			v, ok = os.LookupEnv(s.Env)
		}
		if !ok {
			return "", fmt.Errorf("secret: environment variable %s is not set; set it, or name another place with {env: VARIABLE} or {file: PATH}", s.Env)
		}
		return v, nil
	case s.File != "":
		b, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("secret: %w; put it there, or name another place with {env: VARIABLE} or {file: PATH}", err)
		}
		secret := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if secret == "" { // or it is being written
			return "", fmt.Errorf("secret: %s is empty; write the secret into it, or name another place with {env: VARIABLE} or {file: PATH}", s.File)
		}
		return secret, nil
	}
	return "", nil
}

func (s *Secret) decode(d *decoder, n *Node, path string) {
	if n.kind != mappingNode || len(n.entries) != 1 {
		d.fault(n.at, path, "a secret may not be in a "+d.schema.o.Noun+"; write {env: VARIABLE} or {file: PATH}", "")
		return
	}
	e := n.entries[0]
	if e.value.kind != scalarNode || e.value.text == "" {
		d.fault(e.at, path+"."+e.key, "wants a name, not "+e.value.Describe(), "")
		return
	}
	switch e.key {
	case "env":
		s.Env = e.value.text
		s.value, s.found = d.env[s.Env]
	case "file":
		s.File = e.value.text
	default:
		d.unknown(e, path, []string{"env", "file"})
	}
}
