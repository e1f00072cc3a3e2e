// Package secure holds the settings of encrypted connections and the tokens that callers show, for all that speaks over the
// network.
package secure

import (
	"crypto/tls"
	"errors"
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

// Client reads the files for the side that calls, and returns what gives each of its connections a configuration of its own: base, whose certificate and authorities are those that the files have by
// then, as they are read again when they are replaced. nil gives nil.
func (t *TLS) Client(base *tls.Config) (func() *tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	c := base.Clone()
	c.ServerName = t.ServerName
	if err := t.certificate(c); err != nil {
		return nil, err
	}
	if t.CA == "" {
		return c.Clone, nil
	}
	ca, err := openAuthorities(t.CA)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		own := c.Clone()
		own.RootCAs = ca.get()
		return own
	}, nil
}

// Server reads the files for the side that is called, beside what base says. With a CA it demands a certificate. All files are read again when they are replaced, and count for the connections that are made then. What it
// returns may be cloned, and not changed: connections would not have the change.
func (t *TLS) Server(base *tls.Config) (*tls.Config, error) {
	if t.Cert == "" || t.Key == "" {
		return nil, errors.New("a TLS server needs a certificate file and a key file")
	}
	c := base.Clone()
	if err := t.certificate(c); err != nil {
		return nil, err
	}
	if t.CA == "" {
		return c, nil
	}
	ca, err := openAuthorities(t.CA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	of := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		own := of.Clone()
		own.ClientCAs = ca.get()
		return own, nil
	}
	return c, nil
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
