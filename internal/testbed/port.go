package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreePort finds a TCP port that nobody listens at on loopback, for a server that is started later, or again after a kill. It
// is never one that the kernel hands out by itself: among those a connection of any other process may take the port while
// its server is away, and the server then cannot come back. No port is given twice in one process.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	const lowest = 10000
	highest := ephemeral()
	if highest <= lowest {
		return 0, fmt.Errorf("testbed: the kernel hands out every port from %d on by itself: no port is safe to be used again", highest)
	}
	var last error
	for range 1000 {
		port := lowest + rand.IntN(highest-lowest)
		if given.ports[port] {
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		if err := ln.Close(); err != nil {
			return 0, fmt.Errorf("testbed: %w", err)
		}
		if given.ports == nil {
			given.ports = map[int]bool{}
		}
		given.ports[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("testbed: no free port from %d to %d: %w", lowest, highest-1, last)
}

// FreeAddr is a loopback address, host:port, with a port of [FreePort].
func FreeAddr(t TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// ephemeral is the first port that the kernel hands out by itself.
func ephemeral() int {
	lowest := 32768 // of every system of today, where a file does not say otherwise
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &lowest)
	}
	return lowest
}
