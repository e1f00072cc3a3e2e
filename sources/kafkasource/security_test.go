package kafkasource_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// certificate makes a self-signed certificate for names and writes it and its key as PEM files.
func certificate(t testing.TB, names ...string) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair
}

// securedRecords writes n one-letter records with the security of the options.
func securedRecords(t testing.TB, o kafkasource.Options, n int) {
	t.Helper()
	tc, m, err := o.Security()
	if err != nil {
		t.Fatal(err)
	}
	p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: o.Brokers, Topic: o.Topic, TLS: tc, SASL: m})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := p.Produce(t.Context(), kafkasink.Record{Value: []byte{byte('a' + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Users: []broker.User{
		{Mechanism: "PLAIN", Name: "p", Password: "pw-p"},
		{Mechanism: "SCRAM-SHA-256", Name: "s2", Password: "pw-s2"},
		{Mechanism: "SCRAM-SHA-512", Name: "s=5,", Password: "pw-s5 ü"},
	}})
	good := map[kafkasource.Mechanism][2]string{
		kafkasource.Plain: {"p", "pw-p"}, kafkasource.ScramSHA256: {"s2", "pw-s2"}, kafkasource.ScramSHA512: {"s=5,", "pw-s5 ü"},
	}
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	o.SASL = &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "p", Password: "pw-p"}
	securedRecords(t, o, 3)
	for mechanism, who := range good {
		t.Run(string(mechanism), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(file, []byte(who[1]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			o := o
			o.SASL = &kafkasource.SASL{Mechanism: mechanism, User: who[0], PasswordFile: file}
			if got := values(open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)); got != "a b c" {
				t.Error(got)
			}
			// A password that is changed in its file is used by the next connection.
			if err := os.WriteFile(file, []byte("former\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			src := source(t, o)
			if _, err := src.Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) {
				t.Errorf("with the former password: %v", err)
			}
			if err := os.WriteFile(file, []byte(who[1]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := src.Splits(t.Context()); err != nil {
				t.Errorf("with the password put into the file: %v", err)
			}
			for name, bad := range map[string]kafkasource.SASL{
				"password": {Mechanism: mechanism, User: who[0], Password: "wrong"},
				"user":     {Mechanism: mechanism, User: "nobody", Password: who[1]},
				"file":     {Mechanism: mechanism, User: who[0], PasswordFile: filepath.Join(t.TempDir(), "none")},
				"variable": {Mechanism: mechanism, User: who[0], PasswordEnv: "MONOLITH_TEST_NOT_SET"},
			} {
				o.SASL, o.RetryFor = &bad, time.Hour // a wrong password is not waited out
				_, err := source(t, o).Splits(t.Context())
				if !errors.Is(err, pipeline.ErrConfig) || strings.Contains(err.Error(), who[1]) {
					t.Errorf("wrong %s: %v", name, err)
				}
				if named := strings.Contains(err.Error(), "in source.kafka.sasl"); !named && (name == "password" || name == "user") {
					t.Errorf("wrong %s: %v names no key of the job to look at", name, err)
				}
			}
		})
	}
	o.SASL = nil
	o.RetryFor = 200 * time.Millisecond
	says := func(err error) bool {
		return strings.Contains(err.Error(), "if the listener wants a log-in, set source.kafka.sasl")
	}
	if err := refusal(t, o, says); err == nil || !says(err) {
		t.Errorf("without a log-in: %v", err)
	}
}

// TestRefusedLogIn: what a broker says of a log-in that it refuses is in the error, with the keys of the job to look at, and is not waited out.
func TestRefusedLogIn(t *testing.T) {
	t.Parallel()
	said := "Authentication failed: the account is locked"
	for _, c := range []struct {
		what  string
		key   kmsg.Key
		offer []string
		code  *kerr.Error
		want  []string
	}{
		{"a mechanism that the listener has not", kmsg.SASLHandshake, []string{"GSSAPI", "OAUTHBEARER"}, kerr.UnsupportedSaslMechanism, []string{`it offers ["GSSAPI" "OAUTHBEARER"] for authentication, not "PLAIN"`, "source.kafka.sasl.mechanism"}},
		{"a listener without log-ins", kmsg.SASLHandshake, nil, kerr.IllegalSaslState, []string{"the listener takes no log-in: take source.kafka.sasl out"}},
		{"a refusal with a reason", kmsg.SASLAuthenticate, nil, kerr.SaslAuthenticationFailed, []string{"PLAIN authentication", said, "check user, password and mechanism in source.kafka.sasl"}},
		{"a refusal by another code", kmsg.SASLAuthenticate, nil, kerr.IllegalSaslState, []string{"PLAIN authentication", said, "check user, password and mechanism in source.kafka.sasl"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{Users: []broker.User{{Mechanism: "PLAIN", Name: "p", Password: "secret"}}})
			b.Cluster.ControlKey(int16(c.key), func(q kmsg.Request) (kmsg.Response, error, bool) {
				b.Cluster.KeepControl()
				switch r := q.ResponseKind().(type) {
				case *kmsg.SASLHandshakeResponse:
					r.ErrorCode, r.SupportedMechanisms = c.code.Code, c.offer
					return r, nil, true
				case *kmsg.SASLAuthenticateResponse:
					r.ErrorCode, r.ErrorMessage = c.code.Code, &said
					return r, nil, true
				}
				return nil, nil, false
			})
			o := options(b.Addrs()...)
			o.RetryFor = time.Hour
			o.SASL = &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "p", Password: "secret"}
			_, err := source(t, o).Splits(t.Context())
			if !errors.Is(err, pipeline.ErrConfig) {
				t.Fatalf("%v, want an error of the configuration", err)
			}
			for _, want := range append(c.want, b.Addrs()[0]) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, key, pair := certificate(t, "127.0.0.1", "kafka.test")
	otherCA, _, _ := certificate(t, "127.0.0.1")
	pool := x509.NewCertPool()
	pemBytes, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pemBytes)
	b := start(t, broker.Options{TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}})
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	o.TLS = &kafkasource.TLS{CA: ca, Cert: ca, Key: key}
	securedRecords(t, o, 3)
	if got := values(open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)); got != "a b c" {
		t.Error(got)
	}
	named := o
	named.TLS = &kafkasource.TLS{CA: ca, Cert: ca, Key: key, ServerName: "kafka.test"}
	splits(t, source(t, named))
	for name, c := range map[string]struct {
		tls  *kafkasource.TLS
		want error
	}{
		"unknown authority":  {&kafkasource.TLS{CA: otherCA, Cert: ca, Key: key}, pipeline.ErrConfig},
		"system authorities": {&kafkasource.TLS{Cert: ca, Key: key}, pipeline.ErrConfig},
		"wrong name":         {&kafkasource.TLS{CA: ca, Cert: ca, Key: key, ServerName: "other.test"}, pipeline.ErrConfig},
		"no own certificate": {&kafkasource.TLS{CA: ca}, pipeline.ErrConfig},
		"no file":            {&kafkasource.TLS{CA: ca + ".none"}, pipeline.ErrConfig},
		"no PEM":             {&kafkasource.TLS{CA: key}, pipeline.ErrConfig},
		"plain text":         {nil, pipeline.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.TLS = c.tls
			if errors.Is(c.want, pipeline.ErrUnavailable) { // the others are not waited out
				o.RetryFor = 200 * time.Millisecond
			}
			_, err := source(t, o).Splits(t.Context())
			if authority := name == "unknown authority" || name == "system authorities"; !errors.Is(err, c.want) || strings.Contains(err.Error(), "source.kafka.tls.ca") != authority {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	// And the other way round: TLS to a listener without.
	plain := start(t, broker.Options{})
	o.Brokers = plain.Addrs()
	o.RetryFor, o.Timeout = 200*time.Millisecond, 300*time.Millisecond
	if _, err := source(t, o).Splits(t.Context()); err == nil {
		t.Error("TLS with a plain listener")
	}
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	o := options("a:1")
	if tc, m, err := o.Security(); tc != nil || m != nil || err != nil {
		t.Errorf("TLS %t, %v, %v of options without any", tc != nil, m, err)
	}
	o.SASL = &kafkasource.SASL{}
	if _, _, err := o.Security(); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("bad SASL: %v", err)
	}
}
