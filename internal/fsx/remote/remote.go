// Package remote opens the stores that URLs name. It is the only one that links their clients.
package remote

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/hdfsfs"
	"github.com/monolith-go/monolith/internal/fsx/s3fs"
)

// Store is a folder of a store, as a file system.
type Store struct {
	fsx.FS
	close func() error
	once  sync.Once
	err   error
}

// Close ends what is under way. It may be called more than once, also while other methods run.
func (s *Store) Close() error {
	s.once.Do(func() { s.err = s.close() })
	return s.err
}

const (
	// dialTimeout is how long connecting may take.
	dialTimeout = 15 * time.Second
	// stall is how long a connection may carry nothing while it is waited for.
	stall = 2 * time.Minute
)

// Open opens a folder. Of a bucket it asks nothing yet. Who asks is found in the environment, in the files of the store's own tools, or
// is the machine. Errors: [fsx.ErrUnreachable], [fsx.ErrCredentials].
func Open(ctx context.Context, u fsx.URL) (*Store, error) {
	switch u.Scheme {
	case "file":
		return &Store{FS: fsx.Sub(fsx.Local{}, u.Path), close: func() error { return nil }}, nil
	case "s3", "gs":
		transport := &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: dialTimeout, DisableCompression: true, // what is stored is what is read
		}
		o := s3fs.Options{URL: u, Endpoint: first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), Region: first("AWS_REGION", "AWS_DEFAULT_REGION"), Transport: transport}
		if u.Scheme == "s3" && o.Endpoint == "" && !strings.EqualFold(os.Getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), "true") {
			p := profile()
			o.Endpoint = p["endpoint_url"]
			if o.Region == "" {
				o.Region = p["region"]
			}
		}
		if u.Scheme == "gs" && o.Region == "" {
			o.Region = "auto"
		}
		b, err := s3fs.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return &Store{FS: fsx.Sub(b, u.Path), close: func() error {
			err := b.Close()
			transport.CloseIdleConnections()
			return err
		}}, nil
	case "hdfs":
		c, err := hdfsfs.Open(ctx, hdfsfs.Options{URL: u, User: hadoopUser(), Dial: dial})
		if err != nil {
			return nil, err
		}
		return &Store{FS: fsx.Sub(c, u.Path), close: c.Close}, nil
	}
	return nil, fmt.Errorf("remote: no store of scheme %q", u.Scheme)
}

// profile is the section of the user's profile in the files of the AWS tools, by key. What the file of credentials says counts before the
// other. Sections of services within a profile are not read.
func profile() map[string]string {
	name := first("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
	if name == "" {
		name = "default"
	}
	home, _ := os.UserHomeDir() // without one the paths below are not there
	out := map[string]string{}
	for _, f := range []struct{ path, usual, section string }{
		{os.Getenv("AWS_CONFIG_FILE"), "config", "profile " + name},
		{os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), "credentials", name},
	} {
		if f.path == "" {
			f.path = filepath.Join(home, ".aws", f.usual)
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			continue
		}
		within := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, " \t\r\n")
			if section, ok := strings.CutPrefix(line, "["); ok {
				section = strings.Join(strings.Fields(strings.TrimSuffix(section, "]")), " ")
				within = section == f.section || section == name && name == "default"
				continue
			}
			// A line that is indented belongs to the key above it.
			if key, value, ok := strings.Cut(line, "="); ok && within && line == strings.TrimLeft(line, " \t") {
				out[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	return out
}

// first is the first of some variables of the environment that is set.
func first(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// hadoopUser is who asks HDFS, as for Hadoop's own tools.
func hadoopUser() string {
	if name := os.Getenv("HADOOP_USER_NAME"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "monolith"
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return bounded{c}, nil
}

// bounded is a connection on which nothing is waited for longer than stall.
type bounded struct{ net.Conn }

// Read implements [io.Reader].
func (b bounded) Read(p []byte) (int, error) {
	if err := b.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return b.Conn.Read(p)
}

// Write implements [io.Writer].
func (b bounded) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}
