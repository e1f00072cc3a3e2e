package fsx

// writable does not ask: there is no cheap way to know. The write itself fails.
func writable(string) error { return nil }
