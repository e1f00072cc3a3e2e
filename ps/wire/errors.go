package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/ps"
)

var (
	// ErrUnreachable is [ps.ErrUnreachable]: a shard could not be reached for as long as [ConnOptions].RetryFor. Every call of
	// [Conn] and [Dial] return it; it wraps the last cause. The caller may call again: nothing is lost as long as the shard
	// comes back.
	ErrUnreachable = ps.ErrUnreachable
	// ErrVersion means that client and server speak other versions of the protocol. [Dial] and calls that had to connect again
	// return it. Run the same release on both sides.
	ErrVersion = failure.New(failure.Version, "other protocol version")
	// ErrTooLarge means that a request or its reply is above the limit of a message. Every call may return it, before
	// anything was sent. Use smaller batches, or raise MaxMessage on both sides.
	ErrTooLarge = failure.New(failure.TooLarge, "message above the limit")
	// ErrProtocol means that what arrived is not what the protocol allows, or that the server does not serve it at all. It is
	// a fault of one of the programs, not of the network, and is not tried again.
	ErrProtocol = errors.New("protocol violated")
	// ErrNotAdmitted means that the server wants another token or certificate, or TLS at all, or that its own certificate is
	// not trusted. [Dial] and calls that had to connect again return it. It is not tried again.
	ErrNotAdmitted = failure.Kind(failure.NotAdmitted, "not admitted")
	// ErrBroken is what [Breaker].Break gets when a client's stream ended without a goodbye.
	ErrBroken = errors.New("stream broke")

	errSilent     = errors.New("nothing arrived in time")
	errUnheard    = fmt.Errorf("the goodbye was not answered in time: %w", ps.ErrUnreachable)
	errContinued  = errors.New("the session continues in another stream")
	errStreamOver = errors.New("the server ended the stream")
)

// errorCodes are the errors that keep their identity on their way to a client. A code is never used for another error
// again; an error without a code arrives as text alone. An error may have several.
var errorCodes = [...]struct {
	code byte
	err  error
}{
	{1, ps.ErrFenced},
	{3, ps.ErrGap},
	{4, ps.ErrOverlap},
	{5, ps.ErrTorn},
	{6, ps.ErrLayout},
	{7, ps.ErrBusy},
	{8, ps.ErrClosed},
	{9, ps.ErrNoSpace},
	{10, ps.ErrFull},
	{11, ps.ErrCorrupt},
	{12, context.Canceled},
	{13, context.DeadlineExceeded},
	{14, ErrVersion},
	{15, ps.ErrNotReady},
	{16, ErrTooLarge},
	{17, ErrProtocol},
	{18, ps.ErrNoDir},
	{19, ErrNotAdmitted},
	{20, ps.ErrRolledBack},
	{21, ps.ErrDisturbed},
	{22, ps.ErrMismatch},
	{23, ps.ErrUnreachable},
	{24, ps.ErrRejoin},
	{25, ps.ErrReadOnly},
	{26, ps.ErrScale},
	{27, ps.ErrConsumers},
	{28, ps.ErrDisk},
}

const (
	// codeEpoch stands for a [*ps.EpochError], whose fields follow.
	codeEpoch = 2
	// maxErrorText bounds the text of an error on the wire, bytes.
	maxErrorText = 16 << 10
)

// remoteError is an error that a server has sent: its text is the server's, and errors.Is and errors.As find what it was.
type remoteError struct {
	text string
	errs []error
}

// Error returns the server's text.
func (e *remoteError) Error() string { return e.text }

// Unwrap returns the errors that the text stands for.
func (e *remoteError) Unwrap() []error { return e.errs }

// sizeOfError returns the length of an error's body.
func sizeOfError(err error) int {
	n := 1 + len(codesOf(err)) + 4 + len(textOf(err))
	if e, ok := errors.AsType[*ps.EpochError](err); ok {
		n += 24 + len(e.Split.Source) + len(e.Split.Split)
	}
	return n
}

func codesOf(err error) []byte {
	var out []byte
	if _, ok := errors.AsType[*ps.EpochError](err); ok {
		out = append(out, codeEpoch)
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.err) {
			out = append(out, c.code)
		}
	}
	return out
}

func textOf(err error) string {
	t := err.Error()
	return t[:min(len(t), maxErrorText)]
}

func putError(e *encoder, err error) {
	codes := codesOf(err)
	e.u8(byte(len(codes)))
	e.bytes(codes)
	if x, ok := errors.AsType[*ps.EpochError](err); ok {
		e.u64(x.Epoch)
		e.u64(x.Current)
		e.str(x.Split.Source)
		e.str(x.Split.Split)
	}
	e.str(textOf(err))
}

// readError reads an error's body. err is of the reading itself.
func readError(d *decoder) (remote *remoteError, err error) {
	var codes [256]byte
	n := d.u8()
	d.read(codes[:n])
	remote = &remoteError{}
	for _, code := range codes[:n] {
		if code == codeEpoch {
			x := &ps.EpochError{Epoch: d.u64(), Current: d.u64()}
			x.Split.Source, x.Split.Split = d.str(), d.str()
			remote.errs = append(remote.errs, x)
			continue
		}
		for _, c := range errorCodes {
			if c.code == code {
				remote.errs = append(remote.errs, c.err)
			}
		}
	}
	remote.text = d.str()
	return remote, d.end()
}

// tooLarge says what exceeds which limit. setting is what the reader can change.
func tooLarge(what string, size, limit uint64, setting string) error {
	return fmt.Errorf("wire: %s of %d bytes, the limit is %d (%s): %w", what, size, limit, setting, ErrTooLarge)
}

// Placed adds an address to an error's text that begins with a shard's name. For who "shard 1 at b:1", "ps: shard 1 of 2: busy"
// becomes "ps: shard 1 of 2 at b:1: busy". A text that has the address stays. ok reports whether the text begins with that shard.
func Placed(text, who string) (placed string, ok bool) {
	name, addr, _ := strings.Cut(who, " at ")
	rest, ours := strings.CutPrefix(text, "ps: ")
	rest, ok = strings.CutPrefix(rest, name)
	if !ok || rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		return text, false
	}
	if strings.Contains(text, addr) {
		return text, true
	}
	if count, ok := strings.CutPrefix(rest, " of "); ok {
		after := strings.TrimLeft(count, "0123456789")
		name, rest = name+" of "+count[:len(count)-len(after)], after
	}
	if ours {
		name = "ps: " + name
	}
	return name + " at " + addr + rest, true
}

// PlacedOrNamed is [Placed], and puts who in front of a text that begins otherwise.
func PlacedOrNamed(text, who string) string {
	if placed, ok := Placed(text, who); ok {
		return placed
	}
	return "ps: " + who + ": " + strings.TrimPrefix(text, "ps: ")
}

func violation(format string, args ...any) error {
	return fmt.Errorf("wire: %s: %w", fmt.Sprintf(format, args...), ErrProtocol)
}
