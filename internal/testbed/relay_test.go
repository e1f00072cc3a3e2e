package testbed

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestRelay: what goes through arrives, late if asked for, and a cut ends it until it is mended.
func TestRelay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // gives back what it gets
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	defer func() { _ = l.Close() }()
	r, err := NewRelay("unix:"+t.TempDir()+"/s", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial(network(r.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	there := func(c net.Conn, text string) error {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		b := make([]byte, len(text))
		_, err := io.ReadFull(c, b)
		if err == nil && string(b) != text {
			t.Errorf("%q comes back as %q", text, b)
		}
		return err
	}
	c := dial()
	if err := there(c, "at once"); err != nil {
		t.Fatal(err)
	}
	const delay = 50 * time.Millisecond
	r.Delay(delay)
	began := time.Now()
	if err := there(c, "late"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back in %v with a delay of %v each way", took, delay)
	}
	r.Delay(0)
	r.Cut(true)
	if err := there(c, "cut"); err == nil {
		t.Error("a connection outlives the cut")
	}
	if err := there(dial(), "cut"); err == nil {
		t.Error("a connection is made while the cable is cut")
	}
	r.Cut(false)
	if err := there(dial(), "mended"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
