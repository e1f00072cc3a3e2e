package beam

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/runnerlib"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
)

// elsewhere names an artifact service that is not there.
type elsewhere struct {
	jobpb.UnimplementedJobServiceServer
	addr string
}

func (e *elsewhere) Prepare(context.Context, *jobpb.PrepareJobRequest) (*jobpb.PrepareJobResponse, error) {
	return &jobpb.PrepareJobResponse{PreparationId: "p", ArtifactStagingEndpoint: &pipepb.ApiServiceDescriptor{Url: e.addr}, StagingSessionToken: "t"}, nil
}

// TestLearntAddresses: where no process answers at an address that a service named, the error says which service did. After an interrupt it says nothing of
// addresses.
func TestLearntAddresses(t *testing.T) {
	gone := testbed.FreeAddr(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, names := l.Addr().String(), &elsewhere{addr: gone}
	server := grpc.NewServer()
	jobpb.RegisterJobServiceServer(server, names)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s := &Service{Endpoint: at}
	job := &pipepb.Pipeline{Components: &pipepb.Components{Environments: map[string]*pipepb.Environment{
		"go": {Dependencies: []*pipepb.ArtifactInformation{{RoleUrn: graphx.URNArtifactGoWorkerRole}}},
	}}}
	stage := func(ctx context.Context) error {
		_, _, err := s.stage(ctx, jobpb.NewJobServiceClient(conn), job, &runnerlib.JobOptions{Name: "n"})
		return s.unreachable(err)
	}
	control := func(ctx context.Context) error { // as Beam's worker connects
		_, err := grpcx.Dial(ctx, gone, time.Minute)
		return learnt(err, "the provision service "+at, "the runner's control service", gone, "")
	}
	for _, c := range []struct {
		name string
		do   func(context.Context) error
		want string
	}{
		{"artifacts", stage, "the job service at " + at + " answered, and says that its artifact service is at " + gone + ", where none answers from here"},
		{"control", control, "the provision service " + at + " answered, and says that the runner's control service is at " + gone + ", where none answers from here"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := c.do(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if !errors.Is(err, pipeline.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v: not unavailable, or of several lines", c.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := stage(ctx); err == nil || strings.Contains(err.Error(), "answered, and says") {
		t.Errorf("interrupted: %v", err)
	}
}
