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

// TLS names the files, in PEM, that one side of an encrypted connection needs. It is a section of job files too. A client's zero
// value trusts the system's authorities and shows no certificate.
type TLS struct {
	// CA is the PEM file of whom this side trusts to certify the other. Empty: who connects trusts the system's authorities, who
	// is connected to asks for no certificate.
	CA string `yaml:"ca" default:""`
	// Cert is the PEM file of this side's certificate; it needs a key. Who is connected to (shards) needs one, who connects only
	// where a certificate is asked for.
	Cert string `yaml:"cert" default:""`
	// Key is the PEM file of the certificate's key.
	Key string `yaml:"key" default:""`
	// ServerName is checked against the other side's certificate by who connects; empty: the host of the address.
	ServerName string `yaml:"server_name" default:""`
}

// Check finds what is wrong with the names alone. nil has no fault.
func (t *TLS) Check() error {
	if t != nil && (t.Cert == "") != (t.Key == "") {
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

// Server reads the files for the side that is called. With a CA it demands a certificate. Certificate and key are read again when their files are replaced, the CA is not.
func (t *TLS) Server(least uint16) (*tls.Config, error) {
	if t.Cert == "" || t.Key == "" {
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
	if t.Cert == "" {
		return nil
	}
	cert, err := openCertificate(t.Cert, t.Key)
	if err != nil {
		return err
	}
	c.GetCertificate, c.GetClientCertificate = cert.called, cert.asked
	return nil
}

// authorities are those of CA; nil without one.
func (t *TLS) authorities() (*x509.CertPool, error) {
	if t.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("authorities (ca): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities (ca): %s holds no PEM certificate", t.CA)
	}
	return pool, nil
}
