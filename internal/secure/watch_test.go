package secure_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/testbed"
)

// watching is a watch whose clock the test moves on, and what its log and its hook have had.
type watching struct {
	t *testing.T

	mu     sync.Mutex
	log    bytes.Buffer
	until  map[string]time.Time
	failed map[string]int
}

func (w *watching) CertificateUsed(file string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until[file] = until
}

func (w *watching) CertificateFailed(file string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[file]++
}

func (w *watching) TokenUsed(string) {}

func (w *watching) TokenFailed(file string) { w.CertificateFailed(file) }

// valid is until when what is used of a file is valid, as of the last look.
func (w *watching) valid(file string) time.Time {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until[file]
}

// failures counts those of a file.
func (w *watching) failures(file string) int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed[file]
}

func (w *watching) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

func watch(t *testing.T, files ...*secure.TLS) *watching {
	t.Helper()
	return watchAll(t, files, nil)
}

func watchAll(t *testing.T, files []*secure.TLS, tokens []secure.TokenFile) *watching {
	t.Helper()
	w := &watching{t: t, until: map[string]time.Time{}, failed: map[string]int{}}
	watch := secure.NewWatch(slog.New(slog.NewTextHandler(w, nil)), w, files, tokens)
	t.Cleanup(watch.Close)
	synctest.Wait()
	return w
}

// says lets time pass, and returns the lines that were logged meanwhile, without their times.
func (w *watching) says(d time.Duration) (lines []string) {
	w.t.Helper()
	w.heard()
	time.Sleep(d)
	return w.heard()
}

// heard returns the lines that were logged since it was asked last.
func (w *watching) heard() (lines []string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.log.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		lines = append(lines, strings.TrimSpace(rest))
	}
	w.log.Reset()
	return lines
}

// want fails unless there is one line that has all of these.
func want(t *testing.T, what string, lines []string, parts ...string) {
	t.Helper()
	if len(lines) != 1 {
		t.Errorf("%s: %d lines, want one: %q", what, len(lines), lines)
		return
	}
	for _, part := range parts {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%s: %s, want %s in it", what, lines[0], part)
		}
	}
}

func quiet(t *testing.T, what string, lines []string) {
	t.Helper()
	if len(lines) > 0 {
		t.Errorf("%s: %q, want nothing", what, lines)
	}
}

func write(t *testing.T, file string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(file, bytes.Join(parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWatchSaysWhatCannotBeRead: each content of a certificate's file that cannot be used is said once, with what is used meanwhile, and that there is a good one again.
func TestWatchSaysWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := testbed.NewAuthority(t, t.TempDir(), "ca")
		cert, key := ca.Issue(t, "localhost")
		good, until := read(t, cert), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		w := watch(t, nil, &secure.TLS{CA: ca.File, Cert: cert, Key: key}, &secure.TLS{Cert: cert, Key: key})
		quiet(t, "good files", w.says(time.Minute))
		if a, b := w.valid(cert), w.valid(ca.File); !a.Equal(until) || !b.Equal(until) {
			t.Errorf("valid until %v and %v, want both until %v", a, b, until)
		}
		write(t, cert, []byte("half of a"))
		want(t, "a broken one", w.says(5*time.Minute), "WARN", "file="+cert, "failed to find any PEM data", "valid_until=2000-01-01T01:00:00")
		if a, b := w.failures(cert), w.failures(ca.File); a < 20 || b > 0 {
			t.Errorf("%d and %d failures counted in five minutes", a, b)
		}
		write(t, cert, []byte("another half of a"))
		want(t, "another broken one", w.says(time.Minute), "WARN", "file="+cert)
		if err := os.Remove(cert); err != nil {
			t.Fatal(err)
		}
		want(t, "one that is gone", w.says(time.Minute), "WARN", "no such file")
		write(t, cert, good)
		want(t, "the good one again", w.says(time.Minute), "INFO", "read again", "file="+cert)
		before := w.failures(cert)
		ca.Issue(t, "localhost")
		want(t, "a new one", w.says(time.Minute), "INFO", "read again")
		if n := w.failures(cert); n != before {
			t.Errorf("%d failures of good files", n-before)
		}
		write(t, ca.File)
		want(t, "authorities that are gone", w.says(time.Minute), "WARN", "file="+ca.File, "holds no PEM certificate")
	})
}

// TestWatchOfTokens: each content of a token's file that cannot be used is said once, and counted while it lasts, and that there is a good one again; one that was never good is not.
func TestWatchOfTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, none := filepath.Join(dir, "token"), filepath.Join(dir, "none")
		from := func(file string) secure.TokenFile {
			return secure.TokenFile{File: file, Token: func() (string, error) {
				b, err := os.ReadFile(file)
				return strings.TrimSpace(string(b)), err
			}}
		}
		write(t, file, []byte("secret\n"))
		w := watchAll(t, nil, []secure.TokenFile{from(file), from(file), from(none), {}})
		fresh := secure.NewFresh(from(file).Token)
		serves := func(what, want string) {
			t.Helper()
			if got, err := fresh.Get(); got != want || err != nil {
				t.Errorf("%s: %q, %v serves, want %q", what, got, err, want)
			}
		}
		serves("at first", "secret")
		quiet(t, "a good file", w.says(time.Minute))
		for _, bad := range []struct{ what, content, said string }{
			{"an empty one", "\n", "it is empty"}, {"two lines", "one secret\nanother", "line breaks"}, {"no text", "\x00\xff secret", "characters other than"},
		} {
			before := w.failures(file)
			write(t, file, []byte(bad.content))
			lines := w.says(5 * time.Minute)
			want(t, bad.what, lines, "WARN", "a token cannot be read again", "file="+file, bad.said)
			if strings.Contains(strings.Join(lines, ""), "secret") {
				t.Errorf("%s: the token is in the log: %q", bad.what, lines)
			}
			if n := w.failures(file) - before; n < 20 {
				t.Errorf("%s: %d failures counted in five minutes", bad.what, n)
			}
			serves(bad.what, "secret")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		want(t, "one that is gone", w.says(time.Minute), "WARN", "no such file")
		serves("one that is gone", "secret")
		write(t, file, []byte("next"))
		want(t, "a good one again", w.says(time.Minute), "INFO", "a token is read again", "file="+file)
		serves("a good one again", "next")
		if n := w.failures(none); n > 0 {
			t.Errorf("%d failures of a file that was never there", n)
		}
	})
}

// TestWatchIsQuietWhileFilesAreReplaced: a certificate that came before its key is no fault while it takes less than a look.
func TestWatchIsQuietWhileFilesAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := testbed.NewAuthority(t, t.TempDir(), "ca")
		cert, key := ca.Issue(t, "localhost")
		w := watch(t, &secure.TLS{Cert: cert, Key: key})
		old := read(t, key)
		ca.Issue(t, "localhost")
		next := read(t, key)
		write(t, key, old)
		quiet(t, "a certificate without its key", w.says(15*time.Second))
		write(t, key, next)
		want(t, "both", w.says(15*time.Second), "INFO", "read again")
		if n := w.failures(cert); n > 0 {
			t.Errorf("%d failures", n)
		}
	})
}

// TestWatchSaysWhatExpires: before a certificate ends and when it has, once each, and again for the next.
func TestWatchSaysWhatExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := testbed.NewAuthority(t, t.TempDir(), "ca")
		time.Sleep(30 * time.Minute)
		cert, key := ca.Issue(t, "localhost") // to 01:30, and its authority to 01:00
		w := watch(t, &secure.TLS{Cert: cert, Key: key})
		c := watch(t, &secure.TLS{CA: ca.File})
		quiet(t, "half an hour before", c.says(5*time.Minute))
		want(t, "20 minutes before", c.says(20*time.Minute), "WARN", "expires soon", "file="+ca.File, "valid_until=2000-01-01T01:00:00")
		want(t, "the end", c.says(time.Hour), "ERROR", "has expired", "file="+ca.File)
		if got := w.heard(); len(got) != 2 {
			t.Errorf("%d lines on the certificate, want that it expires and that it has: %q", len(got), got)
		}
		ca.Issue(t, "localhost") // for an hour from 01:55
		want(t, "the next", w.says(30*time.Minute), "INFO", "read again")
		want(t, "the next before its end", w.says(29*time.Minute), "WARN", "expires soon")
	})
}

// TestAnExpiredCertificateReplacesNone: one whose time is over or to come is not taken while the last one is good.
func TestAnExpiredCertificateReplacesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := testbed.NewAuthority(t, t.TempDir(), "ca")
		cert, key := ca.Issue(t, "localhost")
		files := &secure.TLS{Cert: cert, Key: key}
		server, err := files.Server(&tls.Config{MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		shown := func() string {
			t.Helper()
			time.Sleep(2 * time.Second)
			c, err := server.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			return c.Leaf.SerialNumber.String()
		}
		w, first := watch(t, files), shown()
		ca.IssueExpired(t, "localhost")
		want(t, "an expired one", w.says(time.Minute), "WARN", "has expired at 1999-12-31T23:5", "valid_until=2000-01-01T01:00:00")
		if got := shown(); got != first {
			t.Error("a server shows a certificate that has expired, and had a good one")
		}
		time.Sleep(50 * time.Minute)
		ca.IssueExpired(t, "localhost")
		time.Sleep(10 * time.Minute)
		if got := shown(); got == first {
			t.Error("a server keeps a certificate whose time is over as well")
		}
	})
}

// TestAuthoritiesThatAreCutOff: a file of authorities that ends within the second is not one of the first alone.
func TestAuthoritiesThatAreCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := testbed.NewAuthority(t, dir, "one"), testbed.NewAuthority(t, dir, "two")
		a, b := read(t, one.File), read(t, two.File)
		files := &secure.TLS{CA: filepath.Join(dir, "both")}
		write(t, files.CA, a, b[:len(b)/2])
		_, err := files.Client(&tls.Config{MinVersion: tls.VersionTLS13})
		if err == nil || !strings.Contains(err.Error(), files.CA+" ends within a certificate, behind 1 whole ones") {
			t.Errorf("at first: %v", err)
		}
		write(t, files.CA, a, b)
		conf, err := files.Client(&tls.Config{MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		both := conf().RootCAs
		write(t, files.CA, a, b[:len(b)/2])
		time.Sleep(2 * time.Second)
		if !conf().RootCAs.Equal(both) {
			t.Error("half a file of authorities is used in place of the whole one")
		}
	})
}

// TestWatchOfAuthorities: the first to expire counts, and one that has already where there is no other.
func TestWatchOfAuthorities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now()
		old := testbed.NewAuthority(t, dir, "old")
		time.Sleep(45 * time.Minute)
		next := testbed.NewAuthority(t, dir, "next")
		files := &secure.TLS{CA: filepath.Join(dir, "both")}
		write(t, files.CA, read(t, next.File), read(t, old.File))
		w := watch(t, files)
		is := func(what string, after time.Duration) {
			t.Helper()
			if got := w.valid(files.CA).Sub(began); got != after {
				t.Errorf("%s: valid for %v, want %v", what, got, after)
			}
		}
		is("both", time.Hour)
		time.Sleep(16 * time.Minute) // the old one has expired
		is("the next alone", 105*time.Minute)
		time.Sleep(time.Hour)
		is("none", 105*time.Minute)
	})
}

// TestWatchLeavesWhatWasNeverGood to who opens it.
func TestWatchLeavesWhatWasNeverGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "missing")
		files := &secure.TLS{CA: missing, Cert: missing, Key: missing}
		w := watch(t, files)
		quiet(t, "files that are not there", w.says(time.Minute))
		if got, n := w.valid(missing), w.failures(missing); !got.IsZero() || n > 0 {
			t.Errorf("valid until %v, %d failures", got, n)
		}
		if _, err := files.Client(&tls.Config{MinVersion: tls.VersionTLS13}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}
