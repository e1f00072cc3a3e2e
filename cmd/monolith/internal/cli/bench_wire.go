package cli

func benchWire() benchmark {
	return benchmark{name: "wire", short: "Measure rows on their way to a shard against plain TCP", long: `Measure what lookups and pushes cost between processes against plain TCP framing of the same bytes: payload per second of processor time, of both ends together, on
loopback. The other end answers out of a fixed buffer, so that this is the price of the way alone; "with a shard" has its work too. "in bf16" and "in fp16" are
ps.precision against float32, and payload is that of float32 in both.`}
}
