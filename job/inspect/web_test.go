package inspect

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

// TestSpeaksHTTP1: a web server is told from one of gRPC by its answer to gRPC's greeting.
func TestSpeaksHTTP1(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	go func() { _ = rpc.Serve(l) }()
	defer rpc.Stop()
	for addr, want := range map[string]bool{strings.TrimPrefix(web.URL, "http://"): true, l.Addr().String(): false} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := speaksHTTP1(conn); got != want {
			t.Errorf("%s: %v", addr, got)
		}
		_ = conn.Close()
	}
}
