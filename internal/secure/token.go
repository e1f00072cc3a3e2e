package secure

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// Token is where a token is asked for. It may change: [Fresh] asks again.
type Token func() (string, error)

// Fixed is a token that never changes.
func Fixed(token string) Token { return func() (string, error) { return token, nil } }

// Ask asks for the token. Errors: those of asking, and of a token that no call can bear, as its header has text alone.
func (t Token) Ask() (string, error) {
	token, err := t()
	if err == nil && strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
		err = errors.New("the token has line breaks, or characters other than those of ASCII: write one line of plain text")
	}
	return token, err
}

// askEvery is how old a token may be. A file is not read for each of a thousand calls a second.
const askEvery = time.Second

// Fresh keeps a token and asks for it again when it is older than a second. While it cannot be had, is empty or cannot be borne, the
// last one serves: a file is missing for a moment when it is replaced. A [Watch] says so where that lasts. Methods may overlap.
type Fresh struct {
	from Token

	mu   sync.Mutex
	last string
	at   time.Time
	have bool
}

// NewFresh asks a token for the first time when it is needed.
func NewFresh(from Token) *Fresh { return &Fresh{from: from} }

// Get returns the token. Errors: those of asking, if it has never been had, and one that cannot be borne.
func (f *Fresh) Get() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have && time.Since(f.at) < askEvery {
		return f.last, nil
	}
	token, err := f.from.Ask()
	switch {
	case err == nil && (token != "" || !f.have):
		f.last, f.have = token, true
	case !f.have:
		return "", err
	}
	f.at = time.Now()
	return f.last, nil
}
