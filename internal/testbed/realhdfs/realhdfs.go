// Package realhdfs starts Hadoop's distributed file system for tests: a namenode and a datanode in one process, from Maven artifacts, without an
// installation. It needs java (17 or newer) and mvn; without them a test ends as testbed.Require says for «hdfs».
//
// The jars (88 MiB) are fetched once into the user's cache folder. A cluster takes 5 to 20 seconds to start and 150 MiB of memory, so a
// package's tests share one.
package realhdfs

import (
	"context"
	_ "embed" // for the file beside this one
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

//go:embed pom.xml
var pom []byte

const version = "3.4.1"

// Cluster is a cluster in a process of its own. Permissions are checked, and the user of this process is its superuser. Its methods are not for
// concurrent use.
type Cluster struct {
	// Addr is the namenode's.
	Addr string

	dir, libs string
	process   *jvm.Process
}

// Start starts a cluster that ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	jvm.Need(t, "hdfs")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	libs, err := jvm.Libraries(ctx, "hadoop-"+version, pom, "-Dhadoop.version="+version)
	if err != nil {
		testbed.Require(t, "hdfs", err.Error())
	}
	ports, err := jvm.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Addr: "127.0.0.1:" + ports[0], dir: t.TempDir(), libs: libs}
	if err := c.start(ctx, "-format"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() && c.process != nil {
			t.Logf("end of the cluster's log:\n%s", c.process.LogTail())
		}
	})
	return c
}

func (c *Cluster) start(ctx context.Context, more ...string) error {
	_, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("realhdfs: %w", err)
	}
	details := filepath.Join(c.dir, "details.json")
	if err := os.RemoveAll(details); err != nil {
		return fmt.Errorf("realhdfs: %w", err)
	}
	// The file is written once the datanode has reported its blocks.
	ready := func(context.Context) error {
		_, err := os.Stat(details)
		return err
	}

	c.process, err = jvm.Start(ctx, c.dir, filepath.Join(c.dir, "cluster.log"), c.Addr, ready, append([]string{
		"-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dtest.build.data=" + filepath.Join(c.dir, "data"),
		"-cp", filepath.Join(c.libs, "*"), "org.apache.hadoop.test.MiniDFSClusterManager",
		"-nnport", port, "-httpport", "0", "-datanodes", "1", "-writeDetails", details,
		"-D", "dfs.replication=1", "-D", "dfs.blocksize=1048576", "-D", "dfs.namenode.fs-limits.min-block-size=1048576",
	}, more...)...)
	if err != nil {
		return fmt.Errorf("realhdfs: %w", err)
	}
	return nil
}

// Restart starts the cluster after Kill, with the same address and data, and returns when it serves clients.
func (c *Cluster) Restart(ctx context.Context) error { return c.start(ctx) }

// Kill ends the cluster as kill -9 does and waits for its end. It may be called more than once.
func (c *Cluster) Kill() error {
	if c.process == nil {
		return nil
	}
	return c.process.Kill()
}
