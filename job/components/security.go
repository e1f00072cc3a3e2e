package components

import (
	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

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

func checkTLS(t *secure.TLS, report component.Report) {
	if err := t.Check(); err != nil {
		report("tls", "%v", err)
	}
}
