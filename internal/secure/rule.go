package secure

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Right is what a caller of a parameter server may do. Each includes those before it.
type Right uint8

const (
	// Nothing is what a caller may do who is not let in.
	Nothing Right = iota
	// Read is to look up rows, to read dense parameters, and to ask how things are.
	Read
	// Train is to push, to own splits, to keep worker state, and to ask for snapshots and going back: what a worker does.
	Train
	// Coordinate is to give shards their state and to take their cuts: what the process of shard 0 does.
	Coordinate
)

// String is the right's name in jobs (ps.allow) and errors.
func (r Right) String() string {
	switch r {
	case Read:
		return "read"
	case Train:
		return "train"
	case Coordinate:
		return "coordinate"
	}
	return "nothing"
}

// Rule lets callers in. A caller must have all that it names; of rules that let a caller in, that with the largest right counts.
type Rule struct {
	Right Right
	// Token, if not nil, is what the caller must bear. An empty one is borne by nobody.
	Token Token
	// Names, if not empty, are those of which the caller's certificate must have one: its common name, or one of its alternative names
	// (DNS, URI, e-mail). "*.example.org" stands for every DNS name with one more label.
	Names []string
}

// Check finds what is wrong with a rule, apart from what its token is.
func (r *Rule) Check() error {
	if r.Right == Nothing || r.Right > Coordinate {
		return fmt.Errorf("gives the right to %v", r.Right)
	}
	if r.Token == nil && len(r.Names) == 0 {
		return errors.New("names neither a token nor a certificate, so it would let everybody in")
	}
	for _, name := range r.Names {
		if name == "" || strings.Contains(strings.TrimPrefix(name, "*."), "*") {
			return fmt.Errorf("%q is no name of a certificate; a * stands only for a first label, as in *.example.org", name)
		}
	}
	return nil
}

// Guard decides by rules what callers may do. Methods may overlap.
type Guard struct {
	rules  []Rule
	tokens []*Fresh // of the rules, or nil
}

// NewGuard makes a guard. Without rules every caller may do everything.
func NewGuard(rules []Rule) *Guard {
	g := &Guard{rules: rules, tokens: make([]*Fresh, len(rules))}
	for i, r := range rules {
		if r.Token != nil {
			g.tokens[i] = NewFresh(r.Token)
		}
	}
	return g
}

var (
	// ErrNoToken means that a caller bears no token, and every rule wants one.
	ErrNoToken = errors.New("the server wants a token, and none was sent")
	// ErrToken means that the token of a caller is that of no rule.
	ErrToken = errors.New("the token is not the server's")
	// ErrName means that no rule lets the certificate of a caller in, with the token that it bears.
	ErrName = errors.New("the server knows no rule (ps.allow) for the client's certificate")
)

// Admit returns what the bearer of a token, "" for none, with a verified certificate, nil for none, may do. Errors: [ErrNoToken], [ErrToken],
// [ErrName], and that of a token of a rule that cannot be had.
func (g *Guard) Admit(token string, cert *x509.Certificate) (Right, error) {
	if len(g.rules) == 0 {
		return Coordinate, nil
	}
	best, why := Nothing, ErrNoToken
	if token != "" {
		why = ErrToken
	}
	for i := range g.rules {
		r := &g.rules[i]
		if f := g.tokens[i]; f != nil {
			want, err := f.Get()
			if err != nil {
				if best == Nothing {
					why = fmt.Errorf("the server cannot read its token: %w", err)
				}
				continue
			}
			if token == "" || want == "" || !same(token, want) {
				continue
			}
		}
		if len(r.Names) > 0 && (cert == nil || !slices.ContainsFunc(names(cert), r.has)) {
			why = ErrName
			continue
		}
		best = max(best, r.Right)
	}
	if best == Nothing {
		return Nothing, why
	}
	return best, nil
}

// same compares secrets. Hashes have one length, so that the time shows nothing about the secret's either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// has reports whether a name is one of the rule's.
func (r *Rule) has(name string) bool {
	for _, want := range r.Names {
		if strings.EqualFold(want, name) {
			return true
		}
		if suffix, ok := strings.CutPrefix(want, "*"); ok { // of "*.suffix"
			if label, rest, ok := strings.Cut(name, "."); ok && label != "" && strings.EqualFold("."+rest, suffix) {
				return true
			}
		}
	}
	return false
}

// names are those of a certificate.
func names(c *x509.Certificate) []string {
	out := slices.Concat([]string{c.Subject.CommonName}, c.DNSNames, c.EmailAddresses)
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	return out
}
