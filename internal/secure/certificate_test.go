package secure

import (
	"crypto/tls"
	"net"
	"os"
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
	server, err := files.Server(tls.VersionTLS13)
	if err != nil {
		t.Fatal(err)
	}
	client, err := files.Client(tls.VersionTLS13)
	if err != nil {
		t.Fatal(err)
	}
	client.ServerName = "localhost"
	// shown are the serial numbers of what both sides see of each other.
	shown := func() (byServer, byClient string) {
		t.Helper()
		a, b := net.Pipe()
		s, c := tls.Server(a, server), tls.Client(b, client)
		defer func() { _, _ = a.Close(), b.Close() }()
		done := make(chan error, 1)
		go func() { done <- s.Handshake() }()
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String(), s.ConnectionState().PeerCertificates[0].SerialNumber.String()
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

// TestExpiredCertificate: who begins with a certificate that nobody will take is refused.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t, t.TempDir(), "ca")
	cert, key := ca.IssueExpired(t, "localhost")
	files := &TLS{Cert: cert, Key: key}
	_, err := files.Server(tls.VersionTLS13)
	_, clientErr := files.Client(tls.VersionTLS13)
	for _, err := range []error{err, clientErr} {
		if err == nil || !strings.Contains(err.Error(), cert+" has expired at ") {
			t.Errorf("%v", err)
		}
	}
}
