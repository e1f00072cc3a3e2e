package testbed_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestFreePortStaysFree takes ports that can be listened at, each once, and none that the kernel gives to a connection.
func TestFreePortStaysFree(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	seen := map[string]bool{}
	for range 50 {
		addr := testbed.FreeAddr(t)
		if seen[addr] {
			t.Errorf("%s is given twice", addr)
		}
		seen[addr] = true
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port >= 32768 || port < 1024 {
			t.Errorf("port %s is one of the kernel's (or no port: %v)", text, err)
		}
	}
	// A thousand connections of others: none gets a port that was given.
	for range 1000 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if seen[c.LocalAddr().String()] {
			t.Errorf("a connection has %v", c.LocalAddr())
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
