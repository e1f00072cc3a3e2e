package fsx

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/failure"
)

// Errors of stores that are reached over a network.
var (
	// ErrUnreachable means that a store does not answer, or not as one. Trying again may help.
	ErrUnreachable = failure.New(failure.Unavailable, "the store cannot be reached")
	// ErrCredentials means that a store does not accept who asks. It wraps nothing of what was shown to it.
	ErrCredentials = failure.New(failure.Unavailable, "the store does not accept the credentials")
	// ErrNoBucket means that a store has no such bucket: it is made by its owner, never by a writer.
	ErrNoBucket = failure.New(failure.Unavailable, "there is no such bucket")
)

// Schemes are those of a [URL].
func Schemes() []string { return []string{"s3", "gs", "hdfs", "file"} }

// URL names a folder of a store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, hdfs://NAMENODE:PORT/PATH, hdfs:///PATH for the file
// system that Hadoop's configuration names, or file:///PATH.
type URL struct {
	// Scheme is one of [Schemes].
	Scheme string
	// Host is the bucket, the namenode or nameservice, or empty.
	Host string
	// Path begins with a slash, and has none at its end unless it is the root.
	Path string
}

// IsURL reports whether a text is meant as a [URL] and not as a path of this machine. One that begins with a scheme and lacks a slash is meant as one: [ParseURL] says what is missing, where
// a folder s3: would be made otherwise.
func IsURL(text string) bool { return strings.Contains(text, "://") || slashesMissing(text) != "" }

// slashesMissing is the scheme that a text begins with, where the two slashes behind that are not there.
func slashesMissing(text string) string {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || strings.HasPrefix(rest, "//") || !slices.Contains(Schemes(), scheme) {
		return ""
	}
	return scheme
}

// ParseURL reads a URL. One with a user or password in it is refused: credentials come from where the store's tools find them too. The
// text is not in the error then.
func ParseURL(text string) (URL, error) {
	if scheme := slashesMissing(text); scheme != "" {
		return URL{}, fmt.Errorf("begins with %q and lacks slashes: write %s://, or ./%s: for a folder of this machine that is called so", scheme+":", scheme, scheme)
	}
	u, err := url.Parse(text)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // without the text, which may hold a secret
		}
		return URL{}, fmt.Errorf("is no URL: %w", err)
	}
	switch {
	case u.User != nil:
		return URL{}, errors.New("has credentials in it, where logs would show them; set them in the environment or in the store's own file")
	case u.Scheme == "" && strings.HasPrefix(text, "/"):
		return URL{}, fmt.Errorf("is a path: write file://%s; s3://, gs:// and hdfs:// are possible too", path.Clean(u.Path))
	case u.Scheme == "":
		return URL{}, errors.New("is no URL; possible are s3://, gs://, hdfs:// and file:///, which the whole path of a folder follows")
	case !slices.Contains(Schemes(), u.Scheme):
		return URL{}, fmt.Errorf("begins with %q; possible are s3://, gs://, hdfs:// and file:///", u.Scheme+"://")
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return URL{}, errors.New("has more than scheme, host and path")
	case (u.Scheme == "s3" || u.Scheme == "gs") && (u.Host == "" || u.Port() != ""):
		return URL{}, fmt.Errorf("names no bucket: %s://BUCKET/PREFIX", u.Scheme)
	case u.Scheme == "file" && (u.Host != "" || u.Path == ""):
		return URL{}, errors.New("names no folder: file:///PATH")
	}
	return URL{Scheme: u.Scheme, Host: u.Host, Path: path.Clean("/" + u.Path)}, nil
}

// String is the URL as it is written.
func (u URL) String() string { return u.Scheme + "://" + u.Host + u.Path }

// Join is the URL of what lies below.
func (u URL) Join(elem ...string) string {
	u.Path = path.Join(append([]string{u.Path}, elem...)...)
	return u.String()
}
