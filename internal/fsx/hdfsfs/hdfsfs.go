// Package hdfsfs keeps files in Hadoop's distributed file system.
package hdfsfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Options describe a cluster.
type Options struct {
	// URL names the namenode, with its port, or a nameservice of Hadoop's configuration; without either the configuration's default is
	// meant. Its path is not looked at.
	URL fsx.URL
	// User is who asks; "" is not possible.
	User string
	// Dial connects to namenodes and datanodes. It bounds how long a connection may stall.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// port is that of namenodes where a URL names none.
const port = "8020"

// Cluster is a [fsx.FS]. Files lie beside their place, under a name that begins with a dot, until they are committed.
type Cluster struct {
	o      Options
	client *hdfs.Client
	run    context.Context // ends with Close, and the connections with it
	cancel context.CancelCauseFunc
}

var _ fsx.FS = (*Cluster)(nil)

// Open connects to a namenode. Configuration is looked for in HADOOP_CONF_DIR and HADOOP_HOME, and may be missing where the URL has a namenode.
// Errors: [fsx.ErrUnreachable], [fsx.ErrCredentials] where Kerberos is asked for, which is not spoken here.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	conf, err := hadoopconf.LoadFromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("hdfs: Hadoop's configuration: %w", err)
	}
	addrs := addresses(o.URL.Host, conf)
	if len(addrs) == 0 {
		return nil, fmt.Errorf("hdfs: %s names no namenode, and neither does Hadoop's configuration (HADOOP_CONF_DIR); write hdfs://NAMENODE:PORT/PATH: %w", o.URL, fsx.ErrUnreachable)
	}
	c := &Cluster{o: o}
	c.run, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	options := hdfs.ClientOptionsFromConf(conf)
	if options.KerberosClient != nil {
		return nil, fmt.Errorf("hdfs: %s: %w: Hadoop's configuration asks for Kerberos, which is not supported; mount the folder (NFS gateway, FUSE) and name it as file:///PATH", o.URL, fsx.ErrCredentials)
	}
	options.Addresses, options.User = addrs, o.User
	options.NamenodeDialFunc, options.DatanodeDialFunc = c.dial, c.dial
	stop := context.AfterFunc(ctx, func() { c.cancel(fsx.Ended(ctx)) })
	c.client, err = hdfs.NewClient(options)
	if !stop() {
		return nil, errors.Join(fsx.Ended(ctx), err)
	}
	if err != nil {
		c.cancel(nil)
		return nil, fmt.Errorf("hdfs: %s: %w: %w", o.URL, fsx.ErrUnreachable, err)
	}
	return c, nil
}

// addresses are the namenodes of a host of a URL.
func addresses(host string, conf hadoopconf.HadoopConf) []string {
	if host == "" {
		return conf.Namenodes()
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return []string{host}
	}
	var out []string
	for node := range strings.SplitSeq(conf["dfs.ha.namenodes."+host], ",") {
		if addr := conf["dfs.namenode.rpc-address."+host+"."+strings.TrimSpace(node)]; addr != "" {
			out = append(out, addr)
		}
	}
	if out == nil {
		return []string{net.JoinHostPort(host, port)}
	}
	return out
}

// dial connects, for as long as the cluster is open.
func (c *Cluster) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.run.Err() != nil {
		return nil, fsx.Ended(c.run)
	}
	conn, err := c.o.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &ended{Conn: conn, stop: context.AfterFunc(c.run, func() { _ = conn.Close() })}, nil
}

// ended is a connection that a context ends.
type ended struct {
	net.Conn
	stop func() bool
}

// Close closes the connection.
func (e *ended) Close() error {
	e.stop()
	return e.Conn.Close()
}

// Close ends what is under way. It may be called once.
func (c *Cluster) Close() error {
	c.cancel(fs.ErrClosed) // the client waits for an answer otherwise
	_ = c.client.Close()   // of a connection that is closed
	return nil
}

// at is the path of a name.
func at(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

// fail says what failed, and what can be done about it.
func (c *Cluster) fail(ctx context.Context, op, name string, err error) error {
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	var in *fs.PathError
	for errors.As(err, &in) {
		err = in.Err
	}
	var remote hdfs.Error
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w for user %q; set HADOOP_USER_NAME, or have the folder given to it (hdfs dfs -chown)", fs.ErrPermission, c.o.User)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrInvalid), errors.Is(err, fs.ErrClosed):
	case errors.As(err, &remote):
		text, _, _ := strings.Cut(remote.Message(), "\n") // a stack trace follows
		err = fmt.Errorf("%w: %s: %s", fsx.ErrUnreachable, remote.Exception(), text)
	default:
		err = fmt.Errorf("%w: %w", fsx.ErrUnreachable, err)
	}
	return &fs.PathError{Op: op, Path: fsx.URL{Scheme: "hdfs", Host: c.o.URL.Host, Path: at(name)}.String(), Err: err}
}

func infoOf(i fs.FileInfo) fsx.Info {
	return fsx.Info{Name: i.Name(), Dir: i.IsDir(), Size: i.Size(), ModTime: i.ModTime()}
}

// Open implements [fsx.FS].
func (c *Cluster) Open(ctx context.Context, name string) (fsx.File, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	r, err := c.client.Open(at(name))
	if err == nil && r.Stat().IsDir() {
		err = errors.Join(fs.ErrInvalid, r.Close())
	}
	if err != nil {
		return nil, c.fail(ctx, "open", name, err)
	}
	f := &file{c: c, name: name, r: r, info: infoOf(r.Stat())}
	// Where its blocks lie is asked for now: once the file is replaced nobody knows any more.
	if f.info.Size > 0 {
		if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return f, nil
}

type file struct {
	c    *Cluster
	name string
	info fsx.Info

	mu sync.Mutex // a reader has one place
	r  *hdfs.FileReader
}

// Info implements [fsx.File].
func (f *file) Info() fsx.Info { return f.info }

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < 0 || off >= f.info.Size {
		return 0, io.EOF
	}
	n, err := f.r.ReadAt(p, off)
	if err != nil && (!errors.Is(err, io.EOF) || off+int64(n) < f.info.Size) {
		err = f.c.fail(context.Background(), "read", f.name, err)
	}
	return n, err
}

// Close implements [fsx.File].
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.Close()
}

// Stat implements [fsx.FS].
func (c *Cluster) Stat(ctx context.Context, name string) (fsx.Info, error) {
	if ctx.Err() != nil {
		return fsx.Info{}, fsx.Ended(ctx)
	}
	i, err := c.client.Stat(at(name))
	if err != nil {
		return fsx.Info{}, c.fail(ctx, "stat", name, err)
	}
	return infoOf(i), nil
}

// List implements [fsx.FS].
func (c *Cluster) List(ctx context.Context, dir string) ([]fsx.Info, error) {
	i, err := c.Stat(ctx, dir)
	if err != nil {
		return nil, err
	}
	if !i.Dir {
		return nil, c.fail(ctx, "list", dir, fs.ErrNotExist)
	}
	found, err := c.client.ReadDir(at(dir))
	if err != nil {
		return nil, c.fail(ctx, "list", dir, err)
	}
	out := make([]fsx.Info, len(found))
	for k, i := range found {
		out[k] = infoOf(i)
	}
	slices.SortFunc(out, func(a, b fsx.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Remove implements [fsx.FS].
func (c *Cluster) Remove(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	if err := c.client.Remove(at(name)); err != nil {
		return c.fail(ctx, "remove", name, err)
	}
	return nil
}

// Create implements [fsx.FS].
func (c *Cluster) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	dir, base := path.Split(at(name))
	if err := c.client.MkdirAll(dir, 0o755); err != nil {
		return nil, c.fail(ctx, "create", name, err)
	}
	tmp := path.Join(dir, "."+base+"-"+strconv.FormatUint(rand.Uint64(), 36)+".tmp")
	w, err := c.client.Create(tmp)
	if err != nil {
		return nil, c.fail(ctx, "create", name, err)
	}
	return &writer{c: c, name: name, tmp: tmp, w: w}, nil
}

type writer struct {
	c         *Cluster
	name, tmp string
	w         *hdfs.FileWriter
	done      bool
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		err = w.c.fail(context.Background(), "write", w.name, err)
	}
	return n, err
}

const (
	// replicating is how long a file is waited for that the datanodes have and the namenode does not know of yet.
	replicating     = 30 * time.Second
	replicatingPoll = 50 * time.Millisecond
)

// Commit implements [fsx.Writer].
func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	err := w.w.Close()
	for begin := time.Now(); hdfs.IsErrReplicating(err) && time.Since(begin) < replicating && ctx.Err() == nil; err = w.w.Close() {
		select {
		case <-ctx.Done():
		case <-time.After(replicatingPoll):
		}
	}
	if err == nil {
		err = w.c.client.Rename(w.tmp, at(w.name))
	}
	if err != nil {
		return w.c.fail(ctx, "write", w.name, err)
	}
	w.done = true
	return nil
}

// Close implements [fsx.Writer].
func (w *writer) Close() error {
	if w.done {
		return nil
	}
	w.done = true
	// Removing it ends the namenode's lease on it, whatever became of its blocks.
	_ = w.w.Close()
	if err := w.c.client.Remove(w.tmp); err != nil && !errors.Is(err, os.ErrNotExist) && w.c.run.Err() == nil {
		return w.c.fail(context.Background(), "discard", w.name, err)
	}
	return nil
}
