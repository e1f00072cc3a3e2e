package secure

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"
)

// certificate is the certificate of one side, which reads its files again when it is older than a second: who renews certificates replaces the files of processes that run. While
// they cannot be read, do not fit each other, or hold one whose time is over or to come while the last one's is now, the last one serves. Methods may overlap.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	last *tls.Certificate
	at   time.Time
}

// openCertificate reads the files. Errors: those of reading, and a certificate that has expired.
func openCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key}
	if err := c.read(); err != nil {
		return nil, err
	}
	if end := c.last.Leaf.NotAfter; end.Before(c.at) {
		return nil, c.expired(end)
	}
	return c, nil
}

// expired is the fault of a certificate whose time is over.
func (c *certificate) expired(end time.Time) error {
	return fmt.Errorf("certificate (cert) %s has expired at %s, and the clock says %s: renew it", c.cert, end.Format(time.RFC3339), c.at.Format(time.RFC3339))
}

// read reads the files, and keeps what there was if it cannot.
func (c *certificate) read() error {
	c.at = time.Now()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("certificate (cert) %s with key %s: %w", c.cert, c.key, err)
	}
	if c.last != nil && c.at.Before(c.last.Leaf.NotAfter) { // better the last one, while that is taken
		switch from, until := pair.Leaf.NotBefore, pair.Leaf.NotAfter; {
		case until.Before(c.at):
			return c.expired(until)
		case c.at.Before(from):
			return fmt.Errorf("certificate (cert) %s is valid from %s, and the clock says %s", c.cert, from.Format(time.RFC3339), c.at.Format(time.RFC3339))
		}
	}
	c.last = &pair
	return nil
}

// get returns the certificate.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) >= askEvery {
		_ = c.read() // the last one serves
	}
	return c.last
}

// called answers a caller.
func (c *certificate) called(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil }

// asked answers who is called and asks for a certificate: with none, where it would not do.
func (c *certificate) asked(by *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cert := c.get()
	if !accepts(by, cert) {
		cert = &tls.Certificate{}
	}
	return cert, nil
}

// accepts reports whether who asks will do with a certificate.
func accepts(by *tls.CertificateRequestInfo, cert *tls.Certificate) bool {
	return by.SupportsCertificate(cert) == nil
}
