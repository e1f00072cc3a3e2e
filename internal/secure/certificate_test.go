package secure

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestCertificatesAreReadAgain: a server shows, and a caller too, the certificate that its files have by now, and the last one while they have none.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t, t.TempDir(), "ca")
	cert, key := ca.Issue(t, "localhost")
	files := &TLS{CA: ca.File, Cert: cert, Key: key}
	server, err := files.Server(&tls.Config{MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	client, err := files.Client(&tls.Config{MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	// shown are the serial numbers of what both sides see of each other.
	shown := func() (byServer, byClient string) {
		t.Helper()
		s, c, err := shake(t, server, client)
		if err != nil {
			t.Fatal(err)
		}
		return c.PeerCertificates[0].SerialNumber.String(), s.PeerCertificates[0].SerialNumber.String()
	}
	first, same := shown()
	if first != same {
		t.Fatalf("the server shows %s and the client %s", first, same)
	}
	ca.Issue(t, "localhost") // over the files
	var second string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, c := shown()
		if s != first && s == c {
			second = s
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server shows %s and the client %s, and both showed %s before the files were replaced", s, c, first)
		}
	}
	held, err := openCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cert, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	held.at = time.Time{}
	if got := held.get(); got == nil || got.Leaf.SerialNumber.String() != second {
		t.Errorf("with a broken file it is %v, want the last, %s", got, second)
	}
}

// shake connects a client to a server, and returns what each of them knows of the other.
func shake(t *testing.T, server *tls.Config, client func() *tls.Config) (s, c tls.ConnectionState, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server) // what is left unread waits in the kernel
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		x := conn.(*tls.Conn)
		err = x.HandshakeContext(t.Context())
		s = x.ConnectionState()
		done <- errors.Join(err, x.Close())
	}()
	conf := client()
	conf.ServerName = "localhost"
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(errors.Join(err, l.Close(), <-done))
	}
	y := tls.Client(raw, conf)
	err = y.HandshakeContext(t.Context())
	c = y.ConnectionState()
	if err != nil {
		_ = raw.Close()
	}
	err = errors.Join(err, <-done)
	_, _ = raw.Close(), l.Close()
	return s, c, err
}

// TestAuthoritiesAreReadAgain: an authority is replaced while both sides run, first by both, then by the new one alone.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place := func(to string, from ...string) string {
		t.Helper()
		var all []byte
		for _, name := range from {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		to = filepath.Join(dir, to)
		if err := errors.Join(os.WriteFile(to+".new", all, 0o600), os.Rename(to+".new", to)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	then, now := testbed.NewAuthority(t, t.TempDir(), "then"), testbed.NewAuthority(t, t.TempDir(), "now")
	oldCert, oldKey := then.Issue(t, "localhost")
	newCert, newKey := now.Issue(t, "localhost")
	files := &TLS{CA: place("ca", then.File), Cert: place("cert", oldCert), Key: place("key", oldKey)}
	server, err := files.Server(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"one", "two"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := files.Client(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"two"}})
	if err != nil {
		t.Fatal(err)
	}
	// of is a client of the old or the new authority that trusts both.
	of := func(cert, key string) func() *tls.Config {
		c, err := (&TLS{CA: place("both", then.File, now.File), Cert: cert, Key: key}).Client(&tls.Config{MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, after := of(oldCert, oldKey), of(newCert, newKey)
	s, c, err := shake(t, server, client)
	if err != nil || s.NegotiatedProtocol != "two" || len(s.VerifiedChains) == 0 || len(c.VerifiedChains) == 0 {
		t.Fatalf("at first: %v, protocol %q, %d and %d chains", err, s.NegotiatedProtocol, len(s.VerifiedChains), len(c.VerifiedChains))
	}
	if _, _, err := shake(t, server, after); err == nil {
		t.Fatal("a client of an authority that is not there yet was let in")
	}
	// until waits for what files that were replaced bring about.
	until := func(what string, good func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !good(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	lets := func(c func() *tls.Config) bool { _, _, err := shake(t, server, c); return err == nil }
	place("ca", then.File, now.File)
	until("a client of an authority that was added is not let in", func() bool { return lets(after) })
	if !lets(before) || !lets(client) {
		t.Error("a client of the authority that was there before is let in no more")
	}
	place("key", newKey)
	place("cert", newCert)
	until("who called before does not trust the server's new certificate, or shows an old one", func() bool {
		s, c, err := shake(t, server, client)
		return err == nil && s.PeerCertificates[0].Issuer.CommonName == "now" && c.PeerCertificates[0].Issuer.CommonName == "now"
	})
	place("ca", now.File)
	until("a client of an authority that was taken out is let in", func() bool { return !lets(before) })
	place("ca")
	held, err := openAuthorities(now.File)
	if err != nil {
		t.Fatal(err)
	}
	held.file, held.at = files.CA, time.Time{}
	if last := held.last; held.get() != last || last == nil {
		t.Error("with an empty file the authorities are others than the last")
	}
}

// TestExpiredCertificate: who begins with a certificate that nobody will take is refused.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t, t.TempDir(), "ca")
	cert, key := ca.IssueExpired(t, "localhost")
	files := &TLS{Cert: cert, Key: key}
	_, err := files.Server(&tls.Config{MinVersion: tls.VersionTLS13})
	_, clientErr := files.Client(&tls.Config{MinVersion: tls.VersionTLS13})
	for _, err := range []error{err, clientErr} {
		if err == nil || !strings.Contains(err.Error(), cert+" has expired at ") {
			t.Errorf("%v", err)
		}
	}
}
