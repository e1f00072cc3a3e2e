package ps

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
)

type LogOptions struct {
	Dir    string
	NoSync bool
}
type nodeLog struct{}

func (n *Node) openLog(context.Context) error                                    { return nil }
func (l *nodeLog) failed() error                                                 { return nil }
func (l *nodeLog) reset(context.Context, LoadOptions) error                      { return nil }
func (l *nodeLog) generation(context.Context, uint64) error                      { return nil }
func (l *nodeLog) close() error                                                  { return nil }
func (l *nodeLog) wait(context.Context, uint64) error                            { return nil }
func (l *nodeLog) staged(session, epoch uint64, u *param.Update) (uint64, error) { return 0, nil }
func (l *nodeLog) acquired(session uint64, worker string, id SplitID, epoch uint64) (uint64, error) {
	return 0, nil
}
func (l *nodeLog) left(session uint64) (uint64, error)                { return 0, nil }
func (l *nodeLog) control(session uint64, c *Control) (uint64, error) { return 0, nil }
func (l *nodeLog) state(key string, value []byte) (uint64, error)     { return 0, nil }
func (l *nodeLog) expectCut(uint64)                                   {}
func (l *nodeLog) rotate(*Shard) error                                { return nil }
func (l *nodeLog) trim(context.Context, uint64) error                 { return nil }

// LogName is the folder of a shard's log.
func LogName(index, numShards int) string { return fmt.Sprintf("shard-%04d-of-%04d", index, numShards) }
