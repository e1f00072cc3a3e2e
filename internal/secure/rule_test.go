package secure_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"testing"

	"github.com/monolith-go/monolith/internal/secure"
)

// TestGuard: the largest right of the rules of which a caller has everything.
func TestGuard(t *testing.T) {
	t.Parallel()
	missing := errors.New("missing")
	cert := func(name string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: dns}
	}
	spiffe := cert("")
	spiffe.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster", Path: "/serving"}}
	spiffe.EmailAddresses = []string{"ops@example.org"}
	rules := []secure.Rule{
		{Right: secure.Read, Token: secure.Fixed("r")},
		{Right: secure.Train, Token: secure.Fixed("t")},
		{Right: secure.Read, Names: []string{"*.serving.example.org", "spiffe://cluster/serving"}},
		{Right: secure.Coordinate, Token: secure.Fixed("c"), Names: []string{"ps-0.example.org"}},
		{Right: secure.Coordinate, Token: secure.Fixed("")},
	}
	for _, x := range []struct {
		what  string
		rules []secure.Rule
		token string
		cert  *x509.Certificate
		want  secure.Right
		err   error
	}{
		{"no rules", nil, "", nil, secure.Coordinate, nil},
		{"reader", rules, "r", nil, secure.Read, nil},
		{"trainer", rules, "t", nil, secure.Train, nil},
		{"nobody", rules, "", nil, secure.Nothing, secure.ErrName},
		{"nobody, tokens alone", rules[:2], "", nil, secure.Nothing, secure.ErrNoToken},
		{"stranger, tokens alone", rules[:2], "x", nil, secure.Nothing, secure.ErrToken},
		{"case counts in tokens", rules[:2], "T", nil, secure.Nothing, secure.ErrToken},
		{"coordinator's token alone", rules, "c", nil, secure.Nothing, secure.ErrName},
		{"coordinator's token with another certificate", rules, "c", cert("ps-1.example.org"), secure.Nothing, secure.ErrName},
		{"coordinator's certificate alone", rules, "", cert("ps-0.example.org"), secure.Nothing, secure.ErrName},
		{"coordinator", rules, "c", cert("", "a", "PS-0.example.org"), secure.Coordinate, nil},
		{"certificate of a host", rules, "", cert("a.serving.example.org"), secure.Read, nil},
		{"certificate of the domain", rules, "", cert("serving.example.org"), secure.Nothing, secure.ErrName},
		{"certificate two labels below", rules, "", cert("a.b.serving.example.org"), secure.Nothing, secure.ErrName},
		{"certificate without a first label", rules, "", cert(".serving.example.org"), secure.Nothing, secure.ErrName},
		{"uri", rules, "", spiffe, secure.Read, nil},
		{"the larger of two", rules, "t", spiffe, secure.Train, nil},
		{"e-mail", []secure.Rule{{Right: secure.Train, Names: []string{"ops@example.org"}}}, "", spiffe, secure.Train, nil},
		{"a token that cannot be had", []secure.Rule{{Right: secure.Read, Token: func() (string, error) { return "", missing }}}, "x", nil, secure.Nothing, missing},
	} {
		got, err := secure.NewGuard(x.rules).Admit(x.token, x.cert)
		if got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: %v, %v; want %v, %v", x.what, got, err, x.want, x.err)
		}
	}
}

// TestRuleCheck refuses rules that let in whom nobody means.
func TestRuleCheck(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		rule secure.Rule
		ok   bool
	}{
		{secure.Rule{Right: secure.Read, Token: secure.Fixed("x")}, true},
		{secure.Rule{Right: secure.Read, Names: []string{"*.a", "b"}}, true},
		{secure.Rule{Right: secure.Read}, false},
		{secure.Rule{Token: secure.Fixed("x")}, false},
		{secure.Rule{Right: secure.Coordinate + 1, Token: secure.Fixed("x")}, false},
		{secure.Rule{Right: secure.Read, Names: []string{"*"}}, false},
		{secure.Rule{Right: secure.Read, Names: []string{"a", ""}}, false},
		{secure.Rule{Right: secure.Read, Names: []string{"a.*.b"}}, false},
	} {
		if err := x.rule.Check(); (err == nil) != x.ok {
			t.Errorf("%+v: %v", x.rule.Names, err)
		}
	}
}
