// Package realkafka starts Apache Kafka for tests: one broker and controller in KRaft mode, from Maven artifacts, without
// an installation. It needs java (17 or newer) and mvn; without them a test ends as testbed.Require says for «kafka».
//
// The jars (54 MiB) are fetched once into the user's cache folder. A broker takes 3 to 5 seconds to start and 340 MiB of
// memory, so a package's tests share one.
package realkafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed" // for the two files beside this one
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

//go:embed pom.xml
var pom []byte

//go:embed log4j2.properties
var log4j []byte

// EnvVersion overrides the version of Kafka that is started; 3.9.2, 4.1.2 and 4.3.0 were tried.
const EnvVersion = "MONOLITH_KAFKA_VERSION"

const defaultVersion = "4.3.0"

// User and Password log in at [Broker.SecureAddr] with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const (
	User     = "tester"
	Password = "tester-password"
)

// Broker is a broker in a process of its own. Its methods are not for concurrent use.
type Broker struct {
	// Addr takes plain connections, SecureAddr wants TLS and SASL.
	Addr, SecureAddr string
	// CAFile is the authority of SecureAddr's certificate.
	CAFile string

	dir, libs string
	process   *jvm.Process
}

// Start starts a broker that ends with the test. Its topics are not created by asking for them. The test's name may have no comma,
// which the broker's logging takes for the end of a path.
func Start(t testing.TB) *Broker {
	t.Helper()
	jvm.Need(t, "kafka")
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
	defer cancel()
	libs, err := libraries(ctx)
	if err != nil {
		testbed.Require(t, "kafka", err.Error())
	}
	b := &Broker{dir: t.TempDir(), libs: libs}
	if err := b.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() && b.process != nil {
			t.Logf("end of the broker's log:\n%s", b.process.LogTail())
		}
	})
	return b
}

// libraries returns the folder of jars and fetches them the first time.
func libraries(ctx context.Context) (string, error) {
	version := defaultVersion
	if v := os.Getenv(EnvVersion); v != "" {
		version = v
	}
	return jvm.Libraries(ctx, "kafka-"+version, pom, "-Dkafka.version="+version)
}

// prepare chooses ports, makes a certificate, writes the configuration and formats the log folder.
func (b *Broker) prepare(ctx context.Context) error {
	ports, err := jvm.FreePorts(3)
	if err != nil {
		return err
	}
	b.Addr, b.SecureAddr = "127.0.0.1:"+ports[0], "localhost:"+ports[1]
	b.CAFile = filepath.Join(b.dir, "ca.pem")
	keystore := filepath.Join(b.dir, "keystore.pem")
	if err := certificate(b.CAFile, keystore); err != nil {
		return err
	}
	lines := []string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@localhost:" + ports[2],
		"listeners=PLAINTEXT://" + b.Addr + ",SECURE://127.0.0.1:" + ports[1] + ",CONTROLLER://127.0.0.1:" + ports[2],
		"advertised.listeners=PLAINTEXT://" + b.Addr + ",SECURE://" + b.SecureAddr,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
		"listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_" + User + "=\"" + Password + "\";",
		"listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"ssl.keystore.type=PEM",
		"ssl.keystore.location=" + keystore,
		"log.dirs=" + filepath.Join(b.dir, "data"),
		"num.partitions=1",
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=2",
		"group.initial.rebalance.delay.ms=0",
		// Compaction and retention within the patience of a test.
		"log.retention.check.interval.ms=500",
		"log.cleaner.backoff.ms=200",
		"log.segment.delete.delay.ms=0",
		// A broker that was killed may come back only after its old session has run out, 9 s unless configured.
		"broker.heartbeat.interval.ms=300",
		"broker.session.timeout.ms=1500",
	}
	config := filepath.Join(b.dir, "server.properties")
	if err := errors.Join(
		os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(b.dir, "log4j2.properties"), log4j, 0o600),
	); err != nil {
		return fmt.Errorf("realkafka: %w", err)
	}
	cmd := exec.CommandContext(ctx, "java", b.java("kafka.tools.StorageTool", "format", "-t", clusterID(), "-c", config,
		"--add-scram", "SCRAM-SHA-512=[name="+User+",password="+Password+"]",
		"--add-scram", "SCRAM-SHA-256=[name="+User+",password="+Password+"]")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("realkafka: format: %w: %s", err, jvm.Tail(out, 2000))
	}
	return nil
}

func (b *Broker) java(args ...string) []string {
	return append([]string{
		"-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.properties"), "-cp", filepath.Join(b.libs, "*"),
	}, args...)
}

// Restart starts the broker after Kill, on the same ports and data, and returns when it serves clients.
func (b *Broker) Restart(ctx context.Context) (err error) {
	// The client port opens once the broker is registered: an open port means ready.
	b.process, err = jvm.Start(ctx, b.dir, filepath.Join(b.dir, "server.log"), b.Addr, nil,
		b.java("kafka.Kafka", filepath.Join(b.dir, "server.properties"))...)
	if err != nil {
		return fmt.Errorf("realkafka: %w", err)
	}
	return nil
}

// Kill ends the broker as kill -9 does and waits for its end. It may be called more than once.
func (b *Broker) Kill() error {
	if b.process == nil {
		return nil
	}
	return b.process.Kill()
}

// clusterID makes an id as Kafka writes them: 16 bytes in URL-safe base64. One that looks like a flag would confuse the
// storage tool.
func clusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] &= 0x7f           // so the first character is no hyphen
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// certificate writes a self-signed certificate for localhost, and a file with its key as well.
func certificate(certFile, bothFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("realkafka: certificate: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return fmt.Errorf("realkafka: certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("realkafka: certificate: %w", err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), cert...)
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(bothFile, both, 0o600)); err != nil {
		return fmt.Errorf("realkafka: certificate: %w", err)
	}
	return nil
}
