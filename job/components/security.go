package components

import (
	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// TLS is how connections are encrypted and who is trusted. An empty section uses the system's authorities.
type TLS struct {
	// CA is a PEM file of authorities; empty: the system's.
	CA string `yaml:"ca" default:""`
	// Cert is the PEM file of a client certificate; it needs a key.
	Cert string `yaml:"cert" default:""`
	// Key is the PEM file of the client certificate's key.
	Key string `yaml:"key" default:""`
	// ServerName is checked against the server's certificate; empty: the host of the address.
	ServerName string `yaml:"server_name" default:""`
}

func tlsOptions(t *TLS) *kafkasource.TLS {
	if t == nil {
		return nil
	}
	return &kafkasource.TLS{CAFile: t.CA, CertFile: t.Cert, KeyFile: t.Key, ServerName: t.ServerName}
}

// SASL is a log-in with user and password.
type SASL struct {
	// Mechanism is plain, scram-256 or scram-512.
	Mechanism string `yaml:"mechanism" required:"true" enum:"plain|scram-256|scram-512"`
	// User is the user's name.
	User string `yaml:"user" required:"true"`
	// Password is {env: VARIABLE} or {file: PATH}; it is never in the job itself.
	Password conf.Secret `yaml:"password" required:"true"`
}

// saslOptions reads the password. Errors: [pipeline.ErrConfig].
func saslOptions(s *SASL) (*kafkasource.SASL, error) {
	if s == nil {
		return nil, nil
	}
	password, err := s.Password.Resolve()
	if err != nil {
		return nil, fault.Config("job: %w", err)
	}
	out := &kafkasource.SASL{Mechanism: kafkasource.Mechanism(s.Mechanism), User: s.User, Password: password}
	if s.Password.File != "" { // which may change while the job runs
		out.Password, out.PasswordFile = "", s.Password.File
	}
	return out, nil
}

func (t *TLS) check(report component.Report) {
	if t != nil && (t.Cert == "") != (t.Key == "") {
		report("tls", "needs both cert and key, or neither")
	}
}
