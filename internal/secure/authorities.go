package secure

import (
	"crypto/x509"
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
}

// openAuthorities reads the file. Errors: those of reading.
func openAuthorities(file string) (*authorities, error) {
	a := &authorities{file: file}
	return a, a.read()
}

// read reads the file, and keeps what there was if it cannot.
func (a *authorities) read() error {
	a.at = time.Now()
	pem, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("authorities (ca): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("authorities (ca): %s holds no PEM certificate", a.file)
	}
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
