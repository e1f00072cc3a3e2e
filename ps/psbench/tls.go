package psbench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/wire"
)

// compareTLS measures the same calls on a stream over TLS and on one without.
func compareTLS(ctx context.Context, o bench.Options, name string, push bool, rows int) (_ bench.Result, err error) {
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	files, err := selfSigned(o.Dir, &ends)
	if err != nil {
		return bench.Result{}, err
	}
	var both [2]bench.Candidate
	for i, way := range []struct {
		name string
		tls  *wire.TLS
	}{{"tls", files}, {"plain", nil}} {
		conn, err := overWire(ctx, fixed{}, param.Float32, way.tls, &ends)
		if err != nil {
			return bench.Result{}, err
		}
		if both[i], err = caller(ctx, way.name, conn, push, rows); err != nil {
			return bench.Result{}, err
		}
	}
	return bench.Compare(ctx, o, name, "MB/cpu-s", bench.CPUSeconds, both[0], both[1])
}

// selfSigned writes a certificate for this machine with its key, which both ends of a connection show and trust.
func selfSigned(dir string, ends *ends) (*wire.TLS, error) {
	dir, err := os.MkdirTemp(dir, "monolith-bench-")
	if err != nil {
		return nil, fmt.Errorf("psbench: %w", err)
	}
	ends.add(func() error { return os.RemoveAll(dir) })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("psbench: %w", err)
	}
	now := time.Now()
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("psbench: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("psbench: %w", err)
	}
	t := &wire.TLS{CA: filepath.Join(dir, "cert.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	return t, errors.Join(
		os.WriteFile(t.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(t.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}
