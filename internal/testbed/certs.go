package testbed

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority makes certificates in files.
type Authority struct {
	// File has its own certificate.
	File string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// lasts is how long the next certificate is valid; 0: an hour.
	lasts time.Duration
}

// NewAuthority makes one whose files are in a folder. Its certificates are valid for an hour.
func NewAuthority(t TB, dir, name string) *Authority {
	t.Helper()
	a := &Authority{dir: dir}
	a.File, _ = a.issue(t, name, true)
	return a
}

// Issue writes a certificate of a name, for servers at 127.0.0.1 and for clients, and its key.
func (a *Authority) Issue(t TB, name string) (certFile, keyFile string) {
	t.Helper()
	return a.issue(t, name, false)
}

// IssueExpired is Issue with a certificate whose time is over.
func (a *Authority) IssueExpired(t TB, name string) (certFile, keyFile string) {
	t.Helper()
	a.lasts = -time.Minute
	defer func() { a.lasts = 0 }()
	return a.issue(t, name, false)
}

func (a *Authority) issue(t TB, name string, own bool) (certFile, keyFile string) {
	t.Helper()
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatalf("testbed: %v", err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(cmp.Or(a.lasts, time.Hour)),
		BasicConstraintsValid: true,
	}
	if own {
		tmpl.IsCA, tmpl.KeyUsage = true, x509.KeyUsageCertSign
		a.cert, a.key = tmpl, key
	} else {
		tmpl.DNSNames, tmpl.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	must(err)
	if own {
		a.cert, err = x509.ParseCertificate(der)
		must(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(err)
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}
