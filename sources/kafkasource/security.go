package kafkasource

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/pipeline"
)

// TLS describes how connections are encrypted. The zero value trusts the system's authorities. See [secure.TLS].
type TLS = secure.TLS

func checkTLS(t *TLS) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("kafkasource: source.kafka.tls: %w: %w", err, pipeline.ErrConfig)
	}
	return nil
}

// Mechanism is a way of authentication.
type Mechanism string

// Mechanisms. Plain sends the password as it is, so use it only with TLS.
const (
	Plain       Mechanism = "plain"
	ScramSHA256 Mechanism = "scram-256"
	ScramSHA512 Mechanism = "scram-512"
)

// SASL describes who reads. The password is in an environment variable or a file, so that it is in no job file, flag or
// log; it is looked up whenever a connection begins, so it may change. It is never printed.
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

// password reads it.
func (s *SASL) password() (string, error) {
	if s.Password != "" {
		return s.Password, nil
	}
	password, err := conf.Secret{Env: s.PasswordEnv, File: s.PasswordFile}.Resolve()
	if err != nil {
		return "", fmt.Errorf("kafkasource: source.kafka.sasl.password: %w: %w", err, pipeline.ErrConfig)
	}
	return password, nil
}

// mechanism ensures that the password can be read. It returns nil for nil.
func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s == nil {
		return nil, nil
	}
	if _, err := s.password(); err != nil {
		return nil, err
	}
	return &login{*s}, nil
}

// login reads the password whenever a connection begins, so that a new one is used as soon as it is there.
type login struct{ of SASL }

// Name implements [sasl.Mechanism].
func (l *login) Name() string { return l.with("").Name() }

// Start implements [sasl.Mechanism].
func (l *login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	password, err := l.of.password()
	if err != nil {
		return nil, nil, err
	}
	return l.with(password).Start(ctx)
}

func (l *login) with(password string) sasl.Mechanism {
	switch l.of.Mechanism {
	case Plain:
		return plain.Mechanism{Username: l.of.User, Password: password}
	case ScramSHA512:
		return newScram("SCRAM-SHA-512", sha512.New, l.of.User, password)
	default:
		return newScram("SCRAM-SHA-256", sha256.New, l.of.User, password)
	}
}

// Security reads the files and the password that the options name, for a producer that writes to a cluster as this source
// reads from one; the first result gives each connection its configuration. Either is nil where the options say nothing of it. Errors: [pipeline.ErrConfig].
func (o Options) Security() (func() *tls.Config, sasl.Mechanism, error) {
	if err := errors.Join(checkTLS(o.TLS), o.SASL.validate()); err != nil {
		return nil, nil, err
	}
	tc, err := o.TLS.Client(&tls.Config{MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, nil, fmt.Errorf("kafkasource: source.kafka.tls: %w: %w", err, pipeline.ErrConfig)
	}
	m, err := o.SASL.mechanism()
	return tc, m, err
}
