package secure

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"time"
)

const (
	// checkEvery is how often files of certificates are looked at.
	checkEvery = 10 * time.Second
	// soon is how long before its end a certificate is warned of; a sixth of its life, where that is less: who renews does so earlier.
	soon = 7 * 24 * time.Hour
)

// Hook is notified of how certificates and tokens are. file is the PEM file of a certificate or of authorities, or the file of a token.
type Hook interface {
	// CertificateUsed tells until when what is used of a file is valid.
	CertificateUsed(file string, until time.Time)
	// CertificateFailed is called at each look at a file, or the key that belongs to it, that cannot be used, so that what it held before is.
	CertificateFailed(file string)
	// TokenUsed is called at each look at the file of a token that is used.
	TokenUsed(file string)
	// TokenFailed is called at each look at one that cannot be used, so that what it held before is.
	TokenFailed(file string)
}

// TokenFile is a token that a file has.
type TokenFile struct {
	File  string // empty: there is none
	Token Token  // reads it
}

// Watch says how the files of certificates, authorities and tokens are that a process uses: in its log once for each content that cannot be used, once when one will expire before long, once when it has, and
// when there is another; and to a hook at each look. Connections read the files by themselves, and use what a Watch says: each of them keeps the last that was good. It owns a goroutine, which Close joins.
type Watch struct {
	log    *slog.Logger
	hook   Hook
	files  []*watched
	cancel context.CancelFunc
	done   chan struct{}
}

// watched is a file of a certificate, with its key, of authorities, or of a token.
type watched struct {
	file, key string // key is empty for authorities and tokens
	cert      *certificate
	ca        *authorities
	token     Token
	had       bool // the token was good once
	// bad is the content at the last look, if it could not be used, and told the last of that kind that the log has.
	bad, told string
	// good is the content that is used. ending and over report that the log has that it expires soon, and that it has expired.
	good         string
	ending, over bool
}

// NewWatch begins to watch the files that settings name, some of which may be nil, and those of tokens, each file once. log is never nil; hook may be.
func NewWatch(log *slog.Logger, hook Hook, all []*TLS, tokens []TokenFile) *Watch {
	w := &Watch{log: log, hook: hook, done: make(chan struct{})}
	known := map[[2]string]bool{}
	add := func(f *watched) {
		if id := [2]string{f.file, f.key}; f.file != "" && !known[id] {
			known[id] = true
			w.files = append(w.files, f)
		}
	}
	for _, t := range all {
		if t != nil {
			add(&watched{file: t.Cert, key: t.Key, cert: &certificate{cert: t.Cert, key: t.Key}})
			add(&watched{file: t.CA, ca: &authorities{file: t.CA}})
		}
	}
	for _, t := range tokens {
		add(&watched{file: t.File, token: t.Token})
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.run(ctx)
	return w
}

// Close ends the watch. It is called once.
func (w *Watch) Close() {
	w.cancel()
	<-w.done
}

func (w *Watch) run(ctx context.Context) {
	defer close(w.done)
	if len(w.files) == 0 {
		return
	}
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		for _, f := range w.files {
			w.check(f)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// check reads a file again and says what is new.
func (w *Watch) check(f *watched) {
	content, err := f.content(), f.read()
	begins, until, has := f.valid()
	if !has { // a file that was never good is said by who opens it
		return
	}
	switch {
	case err != nil && content == f.bad:
		w.failed(f, content, err, until)
	case err != nil: // of two files that are replaced one after the other, the first does not fit the second for a moment: nobody is to be told of that
		f.bad = content
	default:
		if content != f.good || f.told != "" {
			w.good(f, content, until)
		}
		f.bad = ""
	}
	if f.token != nil {
		if w.hook != nil {
			w.hook.TokenUsed(f.file)
		}
		return
	}
	if w.hook != nil {
		w.hook.CertificateUsed(f.file, until)
	}
	now := time.Now()
	switch left := until.Sub(now); {
	case left <= 0 && !f.over:
		f.over = true
		w.log.Error("a certificate has expired: connections with it are refused; replace the file, which is read by itself", "file", f.file, "valid_until", until)
	case left > 0 && left < min(soon, until.Sub(begins)/6) && !f.ending:
		f.ending = true
		w.log.Warn("a certificate expires soon: replace the file, which is read by itself", "file", f.file, "valid_until", until)
	}
}

// good says what is used from now on, if it was anything else before.
func (w *Watch) good(f *watched, content string, until time.Time) {
	switch {
	case f.good == "":
	case f.token != nil:
		w.log.Info("a token is read again", "file", f.file)
	default:
		w.log.Info("certificates are read again", "file", f.file, "valid_until", until)
	}
	f.good, f.told, f.ending, f.over = content, "", false, false
}

// failed says that what a file holds now cannot be used.
func (w *Watch) failed(f *watched, content string, err error, until time.Time) {
	switch {
	case w.hook == nil:
	case f.token != nil:
		w.hook.TokenFailed(f.file)
	default:
		w.hook.CertificateFailed(f.file)
	}
	if content == f.told {
		return
	}
	if f.told = content; f.token != nil {
		w.log.Warn("a token cannot be read again: what the file held before is used, until the process is started again; put a good one there, which is read by itself", "file", f.file, "err", err)
		return
	}
	w.log.Warn("certificates cannot be read again: what the file held before is used; put a good one there, which is read by itself", "file", f.file, "err", err, "valid_until", until)
}

// content is a hash of what the files hold, or of why they cannot be read.
func (f *watched) content() string {
	h := sha256.New()
	for _, name := range []string{f.file, f.key} {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(err.Error())
		}
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return string(h.Sum(nil))
}

func (f *watched) read() error {
	switch {
	case f.cert != nil:
		return f.cert.read()
	case f.ca != nil:
		return f.ca.read()
	}
	token, err := f.token.Ask()
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	f.had = f.had || err == nil
	return err
}

// valid is from when and until when what is used is valid; ok is false where nothing is. A token says nothing of times.
func (f *watched) valid() (begins, until time.Time, ok bool) {
	switch {
	case f.cert != nil:
		return validPair(f.cert.last)
	case f.token != nil:
		return begins, until, f.had
	}
	return f.ca.begins, f.ca.until, f.ca.last != nil
}

func validPair(c *tls.Certificate) (begins, until time.Time, ok bool) {
	if c == nil {
		return time.Time{}, time.Time{}, false
	}
	return c.Leaf.NotBefore, c.Leaf.NotAfter, true
}

// firstToEnd is when the first of some authorities expires, and when it began. Those that have expired count where there is no other: an old one is left in a file beside the next.
func firstToEnd(all []*x509.Certificate, now time.Time) (begins, until time.Time) {
	for _, c := range all {
		if gone, later := until.Before(now), c.NotAfter.After(until); gone && later || !gone && !later && !c.NotAfter.Before(now) {
			begins, until = c.NotBefore, c.NotAfter
		}
	}
	return begins, until
}
