//go:build !unix

package cli

import "os"

func dumpSignals() []os.Signal { return nil }

func isDump(os.Signal) bool { return false }
