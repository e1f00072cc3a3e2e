package secure

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync"
	"time"
)

// authorities are those of a file, which is read again when they are older than a second: who replaces an authority first adds the next one to the files of processes that run, then
// has it issue their certificates, and takes the old one out at last. While the file cannot be read, or holds none, the last ones serve. Methods may overlap.
type authorities struct {
	file string

	mu   sync.Mutex
	last *x509.CertPool
	at   time.Time
	// The first of last to expire is valid from begins until until.
	begins, until time.Time
}

// openAuthorities reads the file. Errors: those of reading.
func openAuthorities(file string) (*authorities, error) {
	a := &authorities{file: file}
	return a, a.read()
}

// read reads the file, and keeps what there was if it cannot.
func (a *authorities) read() error {
	a.at = time.Now()
	rest, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("authorities (ca): %w", err)
	}
	var all []*x509.Certificate
	pool := x509.NewCertPool()
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		// One that Go does not read is passed over, as collections of many have such.
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
			pool.AddCert(cert)
		}
	}
	switch {
	case bytes.Contains(rest, []byte("-----BEGIN CERTIFICATE-----")):
		return fmt.Errorf("authorities (ca): %s ends within a certificate, behind %d whole ones: write it anew", a.file, len(all))
	case len(all) == 0:
		return fmt.Errorf("authorities (ca): %s holds no PEM certificate", a.file)
	}
	a.begins, a.until = firstToEnd(all, a.at)
	a.last = pool
	return nil
}

// get returns the authorities.
func (a *authorities) get() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) >= askEvery {
		_ = a.read() // the last ones serve
	}
	return a.last
}
