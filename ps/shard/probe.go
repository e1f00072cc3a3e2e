package shard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

const (
	// probeBlock is what is made durable at a time: about a push of 2,000 rows of dim 16 in the log.
	probeBlock = 128 << 10
	// maxProbe bounds how many blocks somebody may have written.
	maxProbe = 1024
)

// Probe describes what the node has to work with, and writes and syncs so many blocks of 128 KiB, at most 1,024, to a file in the folders of its
// log and of the snapshots, which it removes. The state is not touched. Errors: [ps.ErrClosed], the context's; a folder that cannot be written to is
// reported in the answer.
func (n *Node) Probe(ctx context.Context, blocks int) (ps.Probe, error) {
	st, err := n.Stats(ctx)
	if err != nil {
		return ps.Probe{}, err
	}
	p := ps.Probe{Rows: st.Rows(), Room: n.opts.Memory.Room()}
	for _, t := range st.Tables {
		p.Bytes += t.Bytes
	}
	trainers, _ := n.Participants()
	p.Trainers = len(trainers)
	if p.Host, err = os.Hostname(); err != nil {
		p.Host = ""
	}
	blocks = min(max(blocks, 0), maxProbe)
	log := n.opts.Log
	if n.opts.Shared != nil {
		log = &n.opts.Shared.opts
	}
	if log != nil {
		disk := log.Disk
		if disk == nil {
			disk = fsx.OS{}
		}
		p.Disks = append(p.Disks, probeDisk(ctx, disk, "log", log.Dir, blocks))
	}
	if _, local := n.opts.FS.(fsx.Local); local && n.opts.Dir != "" {
		p.Disks = append(p.Disks, probeDisk(ctx, fsx.OS{}, "snapshots", n.opts.Dir, blocks))
	}
	return p, context.Cause(ctx)
}

// probeDisk makes blocks durable in a file of its own.
func probeDisk(ctx context.Context, disk fsx.Disk, of, dir string, blocks int) ps.DiskProbe {
	p := ps.DiskProbe{Of: of, Dir: dir, Block: probeBlock}
	err := func() (err error) {
		if err := disk.MkdirAll(dir); err != nil { // there may be no snapshot yet
			return err
		}
		name := filepath.Join(dir, ".probe-"+strconv.FormatUint(ps.NewID(), 16))
		f, err := disk.Create(name)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), disk.Remove(name)) }()
		block := make([]byte, probeBlock)
		for range blocks {
			for i := range block { // not what the one before was: a disk may store equal blocks once
				block[i] = block[i]*31 + byte(i>>3) + 1
			}
			begin := time.Now()
			if _, err := f.Write(block); err != nil {
				return err
			}
			if err := f.Sync(); err != nil {
				return err
			}
			p.Syncs = append(p.Syncs, time.Since(begin))
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		p.Failed = err.Error()
	}
	return p
}

// Scratch makes an empty node with the tables of this one, for benchmarks: what is pushed to it changes nothing else. It has no log, no
// snapshots, no dense parameters and no retention, is of generation 1 and takes its memory where this one does. The caller closes it. Errors:
// those of [Open] and [Node.Load].
func (n *Node) Scratch(ctx context.Context) (*Node, error) {
	l := *n.opts.Layout
	l.Dense, l.Retention = nil, param.Retention{}
	s, err := Open(ctx, Options{Layout: &l, NumShards: 1, Memory: n.opts.Memory})
	if err != nil {
		return nil, err
	}
	if err := s.Load(ctx, ps.LoadOptions{Generation: ScratchGeneration}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ScratchGeneration is the generation of every node that [Node.Scratch] makes.
const ScratchGeneration = 1
