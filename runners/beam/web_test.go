package beam

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
)

// TestWebPortIsNoJobService: Flink's web port, where a job service was expected, is named as one.
func TestWebPortIsNoJobService(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	addr := strings.TrimPrefix(web.URL, "http://")
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close() //nolint:errcheck // nothing was said
	_, err = jobpb.NewJobServiceClient(cc).Prepare(t.Context(), &jobpb.PrepareJobRequest{})
	err = (&Service{Endpoint: addr}).unreachable(err)
	if text := err.Error(); !strings.Contains(text, "what answers at "+addr+" speaks HTTP, as Flink's web port 8081 does") || !strings.Contains(text, "8099") {
		t.Error(text)
	}
}
