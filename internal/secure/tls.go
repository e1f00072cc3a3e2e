// Package secure holds the settings of encrypted connections and the tokens that callers show, for all that speaks over the
// network.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS names the files, in PEM, that one side of an encrypted connection needs. A client's zero value trusts the system's
// authorities and shows no certificate.
type TLS struct {
	// CAFile is whom this side trusts to certify the other one. Empty: a client trusts the system's authorities, a server
	// asks for no certificate.
	CAFile string
	// CertFile and KeyFile are this side's certificate and key; both or none. A server needs them; a client only if the server
	// asks for a certificate.
	CertFile, KeyFile string
	// ServerName is the name that the server's certificate must be of; empty: the host of the address. Clients only.
	ServerName string
}

// Check finds what is wrong with the names alone. nil has no fault.
func (t *TLS) Check() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("needs both cert and key, or neither")
	}
	return nil
}

// Client reads the files for the side that calls, with least as the oldest version that it speaks. nil gives nil.
func (t *TLS) Client(least uint16) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: least, ServerName: t.ServerName}
	if err := t.certificate(c); err != nil {
		return nil, err
	}
	var err error
	c.RootCAs, err = t.authorities()
	return c, err
}

// Server reads the files for the side that is called. With a CAFile it demands a certificate.
func (t *TLS) Server(least uint16) (*tls.Config, error) {
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("a TLS server needs a certificate file and a key file")
	}
	c := &tls.Config{MinVersion: least}
	if err := t.certificate(c); err != nil {
		return nil, err
	}
	var err error
	if c.ClientCAs, err = t.authorities(); c.ClientCAs != nil {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, err
}

func (t *TLS) certificate(c *tls.Config) error {
	if t.CertFile == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("certificate (cert) %s with key %s: %w", t.CertFile, t.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{cert}
	return nil
}

// authorities are those of CAFile; nil without one.
func (t *TLS) authorities() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("authorities (ca): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities (ca): %s holds no PEM certificate", t.CAFile)
	}
	return pool, nil
}
