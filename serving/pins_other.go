//go:build !linux

package serving

import "errors"

// pins are nothing here: threads are not bound to CPUs.
type pins struct{}

type pinnedCPU struct{}

func newPins() (*pins, error) { return nil, errors.New("it is done on Linux alone") }

func (*pins) pin() *pinnedCPU { return nil }

func (*pins) unpin(*pinnedCPU) {}
