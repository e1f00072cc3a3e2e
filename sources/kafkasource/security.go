package kafkasource

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/monolith-go/monolith/pipeline"
)

// TLS says how connections are encrypted. The zero value trusts the system's authorities.
type TLS struct {
	// CAFile is a PEM file with the authorities to trust; empty: the system's.
	CAFile string
	// CertFile and KeyFile are PEM files of the client's own certificate, for brokers that ask for one; both or none.
	CertFile, KeyFile string
	// ServerName is the name that broker certificates must carry; empty: the host each broker is reached under.
	ServerName string
}

func (t *TLS) validate() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return fmt.Errorf("kafkasource: source.kafka.tls needs both cert and key, or neither: %w", pipeline.ErrConfig)
	}
	return nil
}

// config reads the files. It returns nil for nil.
func (t *TLS) config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: source.kafka.tls.ca: %w: %w", err, pipeline.ErrConfig)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafkasource: source.kafka.tls.ca %q holds no PEM certificate: %w", t.CAFile, pipeline.ErrConfig)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: source.kafka.tls.cert and key: %w: %w", err, pipeline.ErrConfig)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// Mechanism is a way of authentication.
type Mechanism string

// Mechanisms. Plain sends the password as it is, so use it only with TLS.
const (
	Plain       Mechanism = "plain"
	ScramSHA256 Mechanism = "scram-256"
	ScramSHA512 Mechanism = "scram-512"
)

// SASL says who reads. The password stands in an environment variable or a file, so that it is in no job file, flag or
// log; it is looked up when splits are listed and whenever a reader is opened, so it may change. It is never printed.
type SASL struct {
	Mechanism Mechanism
	User      string
	// PasswordEnv names an environment variable, PasswordFile a file, whose last line break is ignored. Password is for
	// programs that have it from elsewhere. Exactly one of the three is set.
	PasswordEnv, PasswordFile, Password string
}

// String describes the SASL settings without the password.
func (s SASL) String() string {
	from := "a value"
	switch {
	case s.PasswordEnv != "":
		from = "$" + s.PasswordEnv
	case s.PasswordFile != "":
		from = s.PasswordFile
	case s.Password == "":
		from = "nowhere"
	}
	return fmt.Sprintf("%s user %q password from %s", s.Mechanism, s.User, from)
}

// GoString is String: %#v shows no password either.
func (s SASL) GoString() string { return s.String() }

// MarshalText is String: encoders of text and JSON show no password either.
func (s SASL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *SASL) validate() error {
	if s == nil {
		return nil
	}
	var faults []error
	switch s.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
	default:
		faults = append(faults, fmt.Errorf("kafkasource: source.kafka.sasl.mechanism %q is none of %q, %q, %q: %w",
			s.Mechanism, Plain, ScramSHA256, ScramSHA512, pipeline.ErrConfig))
	}
	if s.User == "" {
		faults = append(faults, fmt.Errorf("kafkasource: no source.kafka.sasl.user: %w", pipeline.ErrConfig))
	}
	n := 0
	for _, v := range []string{s.PasswordEnv, s.PasswordFile, s.Password} {
		if v != "" {
			n++
		}
	}
	if n != 1 {
		faults = append(faults, fmt.Errorf("kafkasource: source.kafka.sasl.password needs one of env, file and a value, not %d: %w", n, pipeline.ErrConfig))
	}
	return errors.Join(faults...)
}

func (s *SASL) password() (string, error) {
	switch {
	case s.PasswordEnv != "":
		v, ok := os.LookupEnv(s.PasswordEnv)
		if !ok {
			return "", fmt.Errorf("kafkasource: source.kafka.sasl.password: $%s is not set; export it, or name another variable: %w", s.PasswordEnv, pipeline.ErrConfig)
		}
		return v, nil
	case s.PasswordFile != "":
		b, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return "", fmt.Errorf("kafkasource: source.kafka.sasl.password: %w: %w", err, pipeline.ErrConfig)
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	default:
		return s.Password, nil
	}
}

// mechanism reads the password. It returns nil for nil.
func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s == nil {
		return nil, nil
	}
	pw, err := s.password()
	if err != nil {
		return nil, err
	}
	switch s.Mechanism {
	case Plain:
		return plain.Mechanism{Username: s.User, Password: pw}, nil
	case ScramSHA512:
		return newScram("SCRAM-SHA-512", sha512.New, s.User, pw), nil
	default:
		return newScram("SCRAM-SHA-256", sha256.New, s.User, pw), nil
	}
}

// Security reads the files and the password that the options name, for a producer that writes to a cluster as this source
// reads from one. Either result is nil where the options say nothing of it. Errors: [pipeline.ErrConfig].
func (o Options) Security() (*tls.Config, sasl.Mechanism, error) {
	if err := errors.Join(o.TLS.validate(), o.SASL.validate()); err != nil {
		return nil, nil, err
	}
	tc, err := o.TLS.config()
	if err != nil {
		return nil, nil, err
	}
	m, err := o.SASL.mechanism()
	return tc, m, err
}
