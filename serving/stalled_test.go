package serving_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// listen serves until the test ends, and returns where.
func listen(t *testing.T, serve func(net.Listener) error, stop func()) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && err != http.ErrServerClosed { //nolint:errorlint // it is returned as it is
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// connect is a connection of its own, which nobody else's calls wait for.
func connect(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16), grpc.WithStaticConnWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	})
	return cc
}

// items asks for n predictions.
func items(n int) *tfs.PredictRequest {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i % 50)
	}
	return &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{
		"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(int64(n)), Int64Val: ids},
	}}
}

// served fails unless a client on a connection of its own is answered, in time.
func served(t *testing.T, addr string) {
	t.Helper()
	client := tfs.NewPredictionServiceClient(connect(t, addr))
	eventually(t, func() bool {
		_, err := client.Predict(t.Context(), items(2), grpc.WaitForReady(true))
		return err == nil
	})
}

// stalled is a server whose clients have half a second for a request, and room for so many of them.
func stalled(t *testing.T, calls int) *serving.Server {
	t.Helper()
	tr := train(t, "{lr: {}}", "")
	return serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), MaxCalls: calls, Timeout: 500 * time.Millisecond})
}

// TestHalfMessages: calls over gRPC whose message does not come, or half of it, end and make room, though their connections are sound; other clients are served.
func TestHalfMessages(t *testing.T) {
	t.Parallel()
	s := stalled(t, 4)
	g := s.GRPC(serving.GRPCOptions{})
	addr := listen(t, g.Serve, g.Stop)
	ctx, cancel := context.WithCancel(t.Context()) // no deadline, which the server would be told
	defer cancel()
	defer time.AfterFunc(2*time.Minute, cancel).Stop()

	var silent []grpc.ClientStream
	cc := connect(t, addr)
	for _, method := range []string{tfs.PredictionService_Predict_FullMethodName, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, stream)
	}

	web := &http.Transport{Protocols: &http.Protocols{}}
	web.Protocols.SetUnencryptedHTTP2(true)
	defer web.CloseIdleConnections()
	body, more := io.Pipe()
	defer func() { _ = more.Close() }()
	go func() {
		half := binary.BigEndian.AppendUint32([]byte{0}, 1000) // not compressed, and so many bytes
		_, _ = more.Write(append(half, make([]byte, 500)...))
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+tfs.PredictionService_Predict_FullMethodName, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	answer, err := web.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Header.Get("Grpc-Status"); got != "4" {
		t.Errorf("half a message: status %q %q, want that of DEADLINE_EXCEEDED", got, answer.Header.Get("Grpc-Message"))
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	for _, stream := range silent {
		if err := stream.RecvMsg(&tfs.PredictResponse{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("no message: %v", err)
		}
	}
	eventually(t, func() bool { return s.Calls() == 0 })
	served(t, addr)
}

// TestOneConnectionIsBounded: it has a quarter of all calls, and more of them wait in their client; another client is served meanwhile.
func TestOneConnectionIsBounded(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), Timeout: time.Hour})
	g := s.GRPC(serving.GRPCOptions{})
	addr := listen(t, g.Serve, g.Stop)
	greedy := connect(t, addr)
	const most = 256
	begun := make(chan error, 2*most)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 * most {
		go func() { // waits where it may not begin
			_, err := greedy.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, tfs.PredictionService_Predict_FullMethodName)
			begun <- err
		}()
	}
	for range most {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return s.Calls() >= most })
	served(t, addr)
	if n := s.Calls(); n != most && n != most+1 { // the one that was served may not have been counted out yet
		t.Errorf("%d calls of a connection, %d is the most", n, most)
	}
	cancel()
	for range most {
		if err := <-begun; status.Code(err) != codes.Canceled && err != nil {
			t.Error(err)
		}
	}
	eventually(t, func() bool { return s.Calls() == 0 })
}

// TestAnswersNobodyReads: a client that asks for more than its window holds, and reads nothing of it, keeps no call and no thread of the server; others are served, and what it asked for is
// whole when it does read.
func TestAnswersNobodyReads(t *testing.T) {
	t.Parallel()
	const asked, examples = 12, 20_000 // 80 kB each, of which 64 KiB are sent
	tr := train(t, "{lr: {}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), MaxCalls: asked, Threads: 1, Waiting: asked})
	g := s.GRPC(serving.GRPCOptions{})
	addr := listen(t, g.Serve, g.Stop)
	cc := connect(t, addr)
	var unread []grpc.ClientStream
	for range asked {
		stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{}, tfs.PredictionService_Predict_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(items(examples)); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		unread = append(unread, stream)
	}
	for _, stream := range unread {
		if _, err := stream.Header(); err != nil { // it is answered
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return s.Calls() == 0 })
	served(t, addr)
	for _, stream := range unread {
		got, n := &tfs.PredictResponse{}, 0
		err := stream.RecvMsg(got)
		for _, out := range got.GetOutputs() {
			n += len(out.GetFloatVal())
		}
		if err != nil || n != examples {
			t.Errorf("read late: %d predictions of %d, %v", n, examples, err)
		}
	}
}

// TestPagesNobodyReads: answers over HTTP that are not read hold neither a place nor a connection: each ends with the time that it has to be written in, and others are served meanwhile.
func TestPagesNobodyReads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for answers that take their time; part of the full run")
	}
	const asked, examples = 3, 100_000 // a megabyte each, more than sockets hold here
	tr := train(t, "{lr: {}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), Threads: 1, Waiting: 2 * asked, MaxExamples: examples, Timeout: 10 * time.Second})
	web := s.HTTP(nil)
	var closed atomic.Int64
	web.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if err := c.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
				t.Error(err)
			}
		case http.StateClosed:
			closed.Add(1)
		}
	}
	addr := listen(t, web.Serve, func() { _ = web.Close() })
	body := `{"instances": [` + strings.Repeat(`{"item": 3},`, examples-1) + `{"item": 3}]}`
	var conns []net.Conn
	for range asked {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST /v1/models/clicks:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns { // it is answered
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("HTTP/1.1 200 OK"))
		if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 200 OK" {
			rest := make([]byte, 400)
			n, _ := conn.Read(rest)
			t.Fatalf("%q, %v: %s", first, err, rest[:n])
		}
	}
	client := &http.Client{} // whose connection stays
	defer client.CloseIdleConnections()
	eventually(t, func() bool {
		r, err := client.Post("http://"+addr+"/v1/models/clicks:predict", "application/json", strings.NewReader(`{"instances": [{"item": 3}]}`))
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
	if closed.Load() > 0 {
		t.Error("a connection has ended before its answer could")
	}
	eventually(t, func() bool { return s.Calls() == 0 })
	eventually(t, func() bool { return closed.Load() >= asked }) // the server has given them up
}

// TestBodiesThatStall: a request over HTTP whose body does not come is answered so, and the connection closed; others are served.
func TestBodiesThatStall(t *testing.T) {
	t.Parallel()
	s := stalled(t, 1)
	web := s.HTTP(nil)
	addr := listen(t, web.Serve, func() { _ = web.Close() })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /v1/models/clicks:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"instances\""); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn) // up to the end of the connection
	if err != nil || !bytes.Contains(all, []byte("504 Gateway Timeout")) || !bytes.Contains(all, []byte("has not come within 500ms, of which 12 bytes have")) {
		t.Errorf("%v: %s", err, all)
	}
	eventually(t, func() bool { return s.Calls() == 0 })
	client := &http.Client{}
	defer client.CloseIdleConnections()
	eventually(t, func() bool {
		r, err := client.Post("http://"+addr+"/v1/models/clicks:predict", "application/json", strings.NewReader(`{"instances": [{"item": 3}]}`))
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
}

// fewFiles is a listener that has no file left for the first connection.
type fewFiles struct {
	net.Listener
	tried atomic.Int32
}

func (l *fewFiles) Accept() (net.Conn, error) {
	if l.tried.Add(1) == 1 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestWhatNetHTTPSays: a server that has no files left for connections, and one whose handler panics, says so where people read it.
func TestWhatNetHTTPSays(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := serving.NewServer(serving.Options{Models: models(t), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	server := s.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("of a handler") }))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(&fewFiles{Listener: tcp}) }()
	if r, err := http.Get("http://" + tcp.Addr().String() + "/metrics"); err == nil { // the second connection is accepted
		t.Errorf("a handler that panics answers %s", r.Status)
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	got := log.String()
	for _, want := range []string{"level=WARN msg=\"http: Accept error", "too many open files", "raise the limit of open files (ulimit -n)", "level=ERROR msg=\"http: panic serving"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the log:\n%s", want, got)
		}
	}
}
