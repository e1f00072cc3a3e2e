//go:build !unix

package cli

import "os"

func userSignals() []os.Signal { return nil }

func isDump(os.Signal) bool { return false }

func asksForSnapshot(os.Signal) bool { return false }
