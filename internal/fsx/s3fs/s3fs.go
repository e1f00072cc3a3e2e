// Package s3fs keeps files in a bucket of an object store that speaks S3: Amazon's, Google's by its interoperability, and those
// of others.
package s3fs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
)

// Options describe a bucket.
type Options struct {
	// URL names the bucket, for errors; its path is not looked at.
	URL fsx.URL
	// Endpoint is the server's URL, http or https; "" is Amazon's, or Google's for gs.
	Endpoint string
	// Region signs requests; "" is asked for, or us-east-1 at an Endpoint.
	Region string
	// Transport sends requests. It bounds how long one may stall.
	Transport http.RoundTripper
}

// PartBytes is how much is sent at once, and held in memory by a [fsx.Writer]. A bucket takes 10,000 parts of a file, so one may have
// 312 GiB.
const PartBytes = 32 << 20

const (
	maxParts = 10_000
	// tries is how often a request is sent in all; callers that try for longer do so themselves.
	tries = 3
)

// Bucket is a [fsx.FS]. Credentials are those of the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), of AWS's file of
// profiles, or of the machine's or pod's role, in that order.
type Bucket struct {
	o      Options
	core   minio.Core
	run    context.Context // ends with Close
	cancel context.CancelCauseFunc
}

var _ fsx.FS = (*Bucket)(nil)

// errEndpoint does not show the value, which may hold a password.
var errEndpoint = failure.New(failure.Config, "s3: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url is no URL such as https://minio.example:9000")

// Open makes a client; it asks the server nothing. Errors: an Endpoint that is no URL.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	host, secure := "s3.amazonaws.com", true
	if o.URL.Scheme == "gs" {
		host = "storage.googleapis.com"
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errEndpoint
		}
		host, secure = u.Host, u.Scheme == "https"
		if o.Region == "" {
			o.Region = "us-east-1"
		}
	}
	core, err := minio.NewCore(host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Transport: o.Transport}},
		}),
		Secure: secure, Region: o.Region, Transport: o.Transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %s: %w", o.URL, err)
	}
	b := &Bucket{o: o, core: *core}
	b.run, b.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return b, nil
}

// Close ends what is under way.
func (b *Bucket) Close() error {
	b.cancel(fs.ErrClosed)
	return nil
}

// key is the object of a name.
func key(name string) string {
	k := strings.TrimPrefix(filepath.ToSlash(filepath.Clean(name)), "/")
	if k == "." {
		return ""
	}
	return k
}

// call returns a context that ends with that of the caller, until done is called, and with the bucket. done reports the cause when the
// former has ended.
func (b *Bucket) call(ctx context.Context) (run context.Context, cancel context.CancelCauseFunc, done func() error) {
	run, cancel = context.WithCancelCause(b.run)
	stop := context.AfterFunc(ctx, func() { cancel(fsx.Ended(ctx)) })
	return run, cancel, func() error {
		if !stop() {
			return fsx.Ended(ctx)
		}
		return nil
	}
}

// fail says what failed, and what can be done about it.
func (b *Bucket) fail(op, name string, err error) error {
	var path string
	if k := key(name); k == "" {
		path = b.o.URL.Scheme + "://" + b.o.URL.Host
	} else {
		path = b.o.URL.Scheme + "://" + b.o.URL.Host + "/" + k
	}
	e := minio.ToErrorResponse(err)
	switch {
	case e.Code == "NoSuchBucket":
		err = fmt.Errorf("%w (%s); make it, or fix the name", fsx.ErrNoBucket, b.o.URL.Host)
	case e.Code == "NoSuchKey" || e.Code == "NotFound" || e.StatusCode == http.StatusNotFound:
		err = fs.ErrNotExist
	case slices.Contains([]string{"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "AuthorizationHeaderMalformed", "TokenRefreshRequired"}, e.Code):
		err = fmt.Errorf("%w (%s); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine", fsx.ErrCredentials, e.Code)
	case e.Code == "AccessDenied" || e.StatusCode == http.StatusForbidden:
		err = fmt.Errorf("%w: %s; the credentials need s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload here",
			fs.ErrPermission, strings.TrimSuffix(e.Message, "."))
	case e.Code == "EntityTooLarge":
		err = fmt.Errorf("%w: the store takes no file of this size", err)
	case errors.Is(err, fs.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case e.StatusCode == 0 || e.StatusCode >= 500:
		err = fmt.Errorf("%w: %w", fsx.ErrUnreachable, err)
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Open implements [fsx.FS]. The object is asked for at once and read on as long as it is read in order.
func (b *Bucket) Open(ctx context.Context, name string) (fsx.File, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	if key(name) == "" {
		return nil, b.fail("open", name, fs.ErrInvalid)
	}
	run, cancel, done := b.call(ctx)
	body, info, _, err := b.core.GetObject(run, b.o.URL.Host, key(name), minio.GetObjectOptions{})
	if ended := done(); ended != nil || err != nil {
		cancel(nil)
		if err == nil {
			err = body.Close()
		}
		if ended != nil {
			return nil, errors.Join(ended, err)
		}
		return nil, b.fail("open", name, err)
	}
	return &file{
		b: b, name: name, run: run, cancel: cancel, etag: info.ETag, body: body,
		info: fsx.Info{Name: filepath.Base(name), Size: info.Size, ModTime: info.LastModified},
	}, nil
}

// file is an object that is read: one answer of the server for as long as it is read in order.
type file struct {
	b      *Bucket
	name   string
	info   fsx.Info
	etag   string
	run    context.Context // ends with Close, or with the bucket
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	body io.ReadCloser // nil: none
	at   int64         // where it continues
}

// Info implements [fsx.File].
func (f *file) Info() fsx.Info { return f.info }

// ReadAt implements [io.ReaderAt]. An answer that breaks off is asked for again from there.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < 0 || off >= f.info.Size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), f.info.Size-off)]
	for try := 1; n < len(want); {
		if err = f.seek(off + int64(n)); err == nil {
			var got int
			got, err = io.ReadFull(f.body, want[n:])
			n, f.at = n+got, f.at+int64(got)
			if got > 0 {
				try = 1
			}
		}
		if err == nil {
			continue
		}
		err = errors.Join(f.b.fail("read", f.name, err), f.drop())
		if try++; try > tries || f.run.Err() != nil || !errors.Is(err, fsx.ErrUnreachable) {
			return n, err
		}
	}
	if len(want) < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// seek makes body continue at a byte.
func (f *file) seek(off int64) error {
	if f.body != nil && f.at == off {
		return nil
	}
	if err := f.drop(); err != nil {
		return err
	}
	var o minio.GetObjectOptions
	if err := errors.Join(o.SetRange(off, f.info.Size-1), o.SetMatchETag(f.etag)); err != nil {
		return err
	}
	body, _, _, err := f.b.core.GetObject(f.run, f.b.o.URL.Host, key(f.name), o)
	if err != nil {
		return err
	}
	f.body, f.at = body, off
	return nil
}

func (f *file) drop() error {
	if f.body == nil {
		return nil
	}
	body := f.body
	f.body = nil
	return body.Close()
}

// Close implements [fsx.File].
func (f *file) Close() error {
	f.cancel(fs.ErrClosed)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drop()
}

// Stat implements [fsx.FS]. What lies below a name makes it a folder.
func (b *Bucket) Stat(ctx context.Context, name string) (fsx.Info, error) {
	if ctx.Err() != nil {
		return fsx.Info{}, fsx.Ended(ctx)
	}
	k := key(name)
	run, cancel, done := b.call(ctx)
	defer cancel(nil)
	if k != "" {
		info, err := b.core.StatObject(run, b.o.URL.Host, k, minio.StatObjectOptions{})
		if err == nil {
			return fsx.Info{Name: filepath.Base(name), Size: info.Size, ModTime: info.LastModified}, done()
		}
		if err = b.fail("stat", name, err); !errors.Is(err, fs.ErrNotExist) {
			return fsx.Info{}, errors.Join(err, done())
		}
		k += "/"
	}
	o, below := <-b.core.Client.ListObjects(run, b.o.URL.Host, minio.ListObjectsOptions{Prefix: k, Recursive: true, MaxKeys: 1})
	err := done() // what else is listed ends with the call
	switch {
	case err != nil:
		return fsx.Info{}, err
	case below && o.Err != nil:
		return fsx.Info{}, b.fail("stat", name, o.Err)
	case below:
		return fsx.Info{Name: filepath.Base(name), Dir: true}, nil
	}
	return fsx.Info{}, b.fail("stat", name, fs.ErrNotExist)
}

// List implements [fsx.FS].
func (b *Bucket) List(ctx context.Context, dir string) ([]fsx.Info, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	prefix := key(dir)
	if prefix != "" {
		prefix += "/"
	}
	run, cancel, done := b.call(ctx)
	defer cancel(nil)
	var out []fsx.Info
	for o := range b.core.Client.ListObjects(run, b.o.URL.Host, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, errors.Join(b.fail("list", dir, o.Err), done()) // it is the last that comes
		}
		rest, isDir := strings.CutSuffix(strings.TrimPrefix(o.Key, prefix), "/")
		if rest == "" {
			continue // an object that stands for the folder
		}
		out = append(out, fsx.Info{Name: rest, Dir: isDir, Size: o.Size, ModTime: o.LastModified})
	}
	if err := done(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, b.fail("list", dir, fs.ErrNotExist)
	}
	slices.SortFunc(out, func(a, b fsx.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Remove implements [fsx.FS].
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	run, cancel, done := b.call(ctx)
	defer cancel(nil)
	k := key(name)
	err := fs.ErrNotExist
	if k != "" { // a store says nothing of removing what is not there
		if _, err = b.core.StatObject(run, b.o.URL.Host, k, minio.StatObjectOptions{}); err == nil {
			err = b.core.RemoveObject(run, b.o.URL.Host, k, minio.RemoveObjectOptions{})
		}
	}
	if ended := done(); ended != nil {
		return ended
	}
	if err != nil {
		return b.fail("remove", name, err)
	}
	return nil
}

// Create implements [fsx.FS]. A file of less than [PartBytes] is one request at its end; of a longer one the parts are sent as they are
// written, and those that a writer of the same name has left which was killed are removed.
func (b *Bucket) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	if key(name) == "" {
		return nil, b.fail("create", name, fs.ErrInvalid)
	}
	return &writer{b: b, name: name}, nil
}

type writer struct {
	b     *Bucket
	name  string
	buf   []byte // of the part that is written
	id    string // of the upload; "": no part was sent yet
	parts []minio.CompletePart
	done  bool
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (n int, err error) {
	if w.done {
		return 0, fs.ErrClosed
	}
	for len(p) > 0 {
		if len(w.buf) == PartBytes {
			if err := w.send(); err != nil {
				return n, err
			}
		}
		k := min(len(p), PartBytes-len(w.buf))
		if need := len(w.buf) + k; need > cap(w.buf) {
			w.buf = append(make([]byte, 0, min(max(need, 2*cap(w.buf)), PartBytes)), w.buf...)
		}
		w.buf = append(w.buf, p[:k]...)
		p, n = p[k:], n+k
	}
	return n, nil
}

// sum is the checksum of what is sent, which the server compares.
func (w *writer) sum() string {
	s := sha256.Sum256(w.buf)
	return hex.EncodeToString(s[:])
}

// send sends the part that is in memory.
func (w *writer) send() error {
	bucket, k := w.b.o.URL.Host, key(w.name)
	if len(w.parts) == maxParts {
		return w.b.fail("write", w.name, fmt.Errorf("%w: a file has at most %d parts of %d bytes", fsx.ErrTooLarge, maxParts, PartBytes))
	}
	if w.id == "" {
		// Who may not list them has a rule of the bucket for them.
		_ = w.b.core.RemoveIncompleteUpload(w.b.run, bucket, k)
		var err error
		if w.id, err = w.b.core.NewMultipartUpload(w.b.run, bucket, k, minio.PutObjectOptions{}); err != nil {
			return w.b.fail("write", w.name, err)
		}
	}
	part, err := w.b.core.PutObjectPart(w.b.run, bucket, k, w.id, len(w.parts)+1, bytes.NewReader(w.buf), int64(len(w.buf)), minio.PutObjectPartOptions{Sha256Hex: w.sum()})
	if err != nil {
		return w.b.fail("write", w.name, err)
	}
	w.parts, w.buf = append(w.parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag}), w.buf[:0]
	return nil
}

// Commit implements [fsx.Writer].
func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	run, cancel, done := w.b.call(ctx)
	defer cancel(nil)
	bucket, k := w.b.o.URL.Host, key(w.name)
	var err error
	if w.id == "" {
		_, err = w.b.core.PutObject(run, bucket, k, bytes.NewReader(w.buf), int64(len(w.buf)), "", w.sum(), minio.PutObjectOptions{})
	} else {
		if len(w.buf) > 0 {
			err = w.send()
		}
		if err == nil {
			_, err = w.b.core.CompleteMultipartUpload(run, bucket, k, w.id, w.parts, minio.PutObjectOptions{})
		}
	}
	if ended := done(); ended != nil {
		return ended
	}
	if err != nil {
		if _, named := errors.AsType[*fs.PathError](err); named {
			return err
		}
		return w.b.fail("write", w.name, err)
	}
	w.done, w.buf = true, nil
	return nil
}

// Close implements [fsx.Writer].
func (w *writer) Close() error {
	if w.done {
		return nil
	}
	w.done, w.buf = true, nil
	if w.id == "" {
		return nil
	}
	err := w.b.core.AbortMultipartUpload(w.b.run, w.b.o.URL.Host, key(w.name), w.id)
	if err != nil && w.b.run.Err() == nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		return w.b.fail("discard", w.name, err)
	}
	return nil
}
