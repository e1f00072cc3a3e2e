package kafkasource

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// scramMechanism is SCRAM, RFC 5802, without channel binding, as Kafka has it (KIP-84): names and passwords are taken as
// UTF-8 as they are, without the SASLprep normalisation of the RFC, which Kafka's brokers leave out as well. It is safe for
// concurrent use.
type scramMechanism struct {
	name           string
	hash           func() hash.Hash
	user, password string
	nonce          func() string
}

var _ sasl.Mechanism = scramMechanism{}

func newScram(name string, h func() hash.Hash, user, password string) scramMechanism {
	return scramMechanism{name, h, user, password, rand.Text}
}

// Name implements [sasl.Mechanism].
func (m scramMechanism) Name() string { return m.name }

// Start implements [sasl.Mechanism].
func (m scramMechanism) Start(context.Context) (sasl.StateMachine, []byte, error) {
	nonce := m.nonce()
	bare := "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(m.user) + ",r=" + nonce
	return &scramSession{mechanism: m, nonce: nonce, bare: bare}, []byte("n,," + bare), nil
}

type scramSession struct {
	mechanism   scramMechanism
	nonce, bare string
	signature   []byte // what the server must prove it knows; nil before the first answer
}

// Iterations that a server may ask for: fewer make the password easy to guess from what a listener sees (RFC 7677, section 4),
// far more would stop us for minutes.
const (
	scramMinIterations = 4096
	scramMaxIterations = 1 << 20
)

// Next implements [sasl.StateMachine].
func (s *scramSession) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	attr := map[string]string{}
	for part := range strings.SplitSeq(string(challenge), ",") {
		if k, v, ok := strings.Cut(part, "="); ok {
			attr[k] = v
		}
	}
	if e, ok := attr["e"]; ok {
		return false, nil, fmt.Errorf("refused: %q", e)
	}
	if s.signature == nil {
		answer, err := s.prove(string(challenge), attr)
		return false, answer, err
	}
	got, err := base64.StdEncoding.DecodeString(attr["v"])
	if err != nil || !hmac.Equal(got, s.signature) {
		return false, nil, errors.New("the server does not know the password: it may not be the one it says it is")
	}
	return true, nil, nil
}

// prove answers the server's first message, RFC 5802 section 3:
//
//	SaltedPassword  = Hi(password, salt, iterations)
//	ClientKey       = HMAC(SaltedPassword, "Client Key")
//	AuthMessage     = client-first-bare + "," + server-first + "," + client-final-without-proof
//	ClientProof     = ClientKey XOR HMAC(H(ClientKey), AuthMessage)
//	ServerSignature = HMAC(HMAC(SaltedPassword, "Server Key"), AuthMessage)
func (s *scramSession) prove(first string, attr map[string]string) ([]byte, error) {
	salt, err := base64.StdEncoding.DecodeString(attr["s"])
	iterations, ierr := strconv.Atoi(attr["i"])
	switch {
	case err != nil || len(salt) == 0 || ierr != nil:
		return nil, fmt.Errorf("malformed challenge %q", first)
	case !strings.HasPrefix(attr["r"], s.nonce) || attr["r"] == s.nonce:
		return nil, errors.New("the challenge answers another request")
	case iterations < scramMinIterations || iterations > scramMaxIterations:
		return nil, fmt.Errorf("%d iterations asked for, outside of [%d,%d]", iterations, scramMinIterations, scramMaxIterations)
	}
	h := s.mechanism.hash
	salted, err := pbkdf2.Key(h, s.mechanism.password, salt, iterations, h().Size())
	if err != nil {
		return nil, err
	}
	final := "c=" + base64.StdEncoding.EncodeToString([]byte("n,,")) + ",r=" + attr["r"]
	message := s.bare + "," + first + "," + final
	mac := func(key []byte, text string) []byte {
		m := hmac.New(h, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	client := mac(salted, "Client Key")
	stored := h()
	stored.Write(client)
	proof := bytes.Clone(client)
	subtle.XORBytes(proof, client, mac(stored.Sum(nil), message))
	s.signature = mac(mac(salted, "Server Key"), message)
	return []byte(final + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}
