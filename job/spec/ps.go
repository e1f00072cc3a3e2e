package spec

import "github.com/monolith-go/monolith/internal/secure"

// PS is the parameter server: shards in this process, or in processes of their own (monolith ps).
type PS struct {
	// Shards is the number of shards the parameters are spread over. The result does not depend on it. With addresses it is
	// their number.
	Shards int `yaml:"shards" default:"1" min:"1" max:"1024"`
	// Addresses are those of shards in other processes, in their order: host:port or unix:/path. Empty: the shards are in
	// the process that trains.
	Addresses []string `yaml:"addresses"`
	// Durability is none, where a shard that dies loses what came after the last snapshot, or wal: a write-ahead log keeps
	// everything that was acknowledged.
	Durability string `yaml:"durability" default:"none" enum:"none|wal"`
	// Precision is the format in which rows and their gradients travel between workers and shards: float32, bf16 or fp16. The
	// latter two take half of the bytes, and round: rows that are looked up and gradients of rows, in any arrangement of shards alike. What is stored, and
	// dense parameters, stay float32, and so do lookups ahead of the step (prefetch.lookup, prefetch.push), which carry the
	// optimizers' state. In fp16 the gradients of a push are multiplied by a power of two while they travel, so that small ones are not lost and large
	// ones do not overflow; weights beyond 65504 become that. Rows that are looked up have 8 bits of precision in bf16, 11 in fp16.
	Precision string `yaml:"precision" default:"float32" enum:"float32|bf16|fp16"`
	// Storage is the format in which shards keep embedding vectors: float32, bf16 or fp16. The latter two take half of the memory, and round what each
	// update makes: up or down by chance, with the number itself as the mean, so that steps too small for the format count in the long
	// run. The chance is a function of the row and its updates alone, so that bits depend neither on shards nor on kills. Optimizers' state, linear
	// weights and dense parameters stay float32; with rowwise_adagrad a row has little state beside its vector. Snapshots hold float32 in any. Tables may
	// have their own. Another format than the snapshot's is another rule of the optimizer (restore).
	Storage string `yaml:"storage" default:"float32" enum:"float32|bf16|fp16"`
	// Recovery is what happens when a shard has lost its state: rollback, all shards go back to the last snapshot and the
	// result is as if nothing had happened; or partial, it goes back alone, every example still counts once, and the bits of
	// the result differ.
	Recovery string `yaml:"recovery" default:"rollback" enum:"rollback|partial"`
	// WAL is the write-ahead log.
	WAL WAL `yaml:"wal"`
	// Standby is a second process for shards, which takes over from the first.
	Standby Standby `yaml:"standby"`
	// Retry is how long a worker retries to reach a shard. Longer survives longer restarts, shorter fails
	// sooner.
	Retry Duration `yaml:"retry" default:"30s" min:"0"`
	// Lease is after how much silence a worker is replaced: its splits go to others.
	Lease Duration `yaml:"lease" default:"10s"`
	// ConsumerIdle is for how long shards keep what has changed for a consumer that does not ask (monolith ps changes); then it is forgotten, and given
	// all rows when it comes. A consumer takes two bits for each row.
	ConsumerIdle Duration `yaml:"consumer_idle" default:"1h" min:"1s"`
	// MaxMessage is the largest request or reply.
	MaxMessage Size `yaml:"max_message" default:"256MiB" min:"65536"`
	// Memory is how much the tables of one process may take, before its run ends with exit code 3 and says so. 0: what the
	// machine, or the process's control group, has, less a sixteenth for the system and an eighth, at least 128 MiB, for the
	// program.
	Memory Size `yaml:"memory" default:"0" min:"0"`
	// TLS encrypts what workers and shards exchange; absent: plain text, for loopback and unix sockets. One section serves both
	// sides: cert is that of the shards, and of workers where ca makes one necessary.
	TLS *secure.TLS `yaml:"tls"`
	// Token is what this process's calls bear, and without allow what shards want of every call: {env: VARIABLE} or {file: PATH}. Over the
	// network it needs TLS.
	Token Secret `yaml:"token"`
	// Allow says what shards let whom do. Empty: who is let in, by token and tls.ca, may do everything. Otherwise shards let in those that it
	// names, and nobody else.
	Allow Allow `yaml:"allow"`
}

// Allow says whom shards let do what. Each right includes those before it.
type Allow struct {
	// Read is the right to look up rows, to read dense parameters and to ask how things are: evaluation, export, serving.
	Read Callers `yaml:"read"`
	// Train is the right to push, own splits and ask for snapshots too: workers.
	Train Callers `yaml:"train"`
	// Coordinate is the right to give shards their state and to take their cuts too: the process of shard 0.
	Coordinate Callers `yaml:"coordinate"`
}

// IsZero reports whether nobody is named.
func (a *Allow) IsZero() bool { return a.Read.IsZero() && a.Train.IsZero() && a.Coordinate.IsZero() }

// Callers names who calls: by a token, by a certificate, or by both together.
type Callers struct {
	// Token is what their calls bear (their ps.token): {env: VARIABLE} or {file: PATH}. Only shards need it to be there.
	Token Secret `yaml:"token"`
	// Names are those of which their certificate (tls.cert) has one: its common name or an alternative one (DNS, URI, e-mail).
	// *.example.org stands for every DNS name with one more label. They need tls.ca.
	Names []string `yaml:"names"`
}

// IsZero reports whether nobody is named.
func (c *Callers) IsZero() bool { return c.Token.IsZero() && len(c.Names) == 0 }

// WAL is the write-ahead log of the shards, under durability: wal.
type WAL struct {
	// Dir is the folder of the logs, one for each process that has shards; empty: wal in the job's dir. A disk of its own keeps
	// snapshots from slowing it. The logs in it are this job's: another job is refused.
	Dir string `yaml:"dir" default:""`
	// Sync makes every acknowledgement wait for the disk (fsync, shared by all that wait on all shards of a process). Without it the log survives the
	// end of a process, not that of the machine.
	Sync bool `yaml:"sync" default:"true"`
	// SegmentBytes is the size of a file of the log; those that a process begins with are smaller, and the next is made ready
	// beside it, or is one that a snapshot has made superfluous: about as many of these are kept as the log has.
	SegmentBytes Size `yaml:"segment_bytes" default:"64MiB" min:"4096"`
}

// Standby says which shards have a second process that follows the log of the first, and takes over on command (monolith ps promote) or when that
// does not answer.
type Standby struct {
	// Addresses are where the standbys listen (monolith ps --standby), in the order of ps.addresses: host:port or unix:/path, or "" for a shard without
	// one. They need durability: wal. Where shard 0 has one, the first shard that has none decides for it, in a process without shard 0.
	Addresses []string `yaml:"addresses" blank:"true"`
	// Lease is after how long a shard that shard 0 does not reach stops to work and its standby takes over, and how long a standby that does not
	// answer is waited for. Shorter takes over sooner, and by mistake where machines pause.
	Lease Duration `yaml:"lease" default:"1s" min:"100ms"`
}

// Of is the address of a shard's standby, "" for none.
func (s *Standby) Of(shard int) string {
	if shard < len(s.Addresses) {
		return s.Addresses[shard]
	}
	return ""
}

// Witness is the shard whose process decides which of the two processes of shard 0 is in charge, of so many: the first one behind shard 0 without a standby. 0 where shard 0 has no standby, or
// there is no such shard.
func (s *Standby) Witness(shards int) int {
	for i := 1; i < shards && s.Of(0) != ""; i++ {
		if s.Of(i) == "" {
			return i
		}
	}
	return 0
}

// Remote reports whether the shards are in other processes.
func (p *PS) Remote() bool { return len(p.Addresses) > 0 }
